"""`duly workers`: who lives; and who is to take nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any
from uuid import UUID

import click

from duly.cli.desk import at_desk
from duly.cli.lazy import ListingGroup
from duly.cli.options import with_settings
from duly.cli.output import Listing, json_option, listing_options, print_json, show_list
from duly.cli.say import say
from duly.domain.diagnosis.explain.words import spoken
from duly.settings import Settings


def _weighed(queues: Sequence[str], weights: Sequence[int]) -> list[str]:
    """Name queues as they are given to a worker: with their weight where it is not 1."""
    pairs = zip_longest(queues, weights[: len(queues)], fillvalue=1)
    return [f"{queue}" if weight == 1 else f"{queue}={weight}" for queue, weight in pairs]


def _state(row: Mapping[str, Any]) -> str:
    """Say whether a worker serves; of one that stands still, for how long and in which handlers."""
    if row["stalled_at"] is not None:
        where = f" in {', '.join(row['stalled_in'])}" if row["stalled_in"] else ""
        return f"stalled{where} for {spoken(row['read_at'] - row['stalled_at'])}"
    return "draining" if row["is_draining"] else "serving"


COLUMNS = {
    "id": lambda row: row["worker_id"],
    "name": lambda row: row["name"],
    "version": lambda row: row["version"],
    "queues": lambda row: _weighed(row["queues"], row["weights"]),
    "handlers": lambda row: row["handlers"],
    "slots": lambda row: row["slots"],
    "up for": lambda row: row["read_at"] - row["started_at"],
    "state": _state,
    "lease": lambda row: row["until"] - row["read_at"] if row["until"] > row["read_at"] else "expired",
}


@click.group(cls=ListingGroup)
def workers() -> None:
    """List and drain workers. Without a command: list."""


@workers.command("list")
@listing_options
@with_settings("url")
def list_workers(settings: Settings, listing: Listing) -> None:
    """List the workers that live, what they serve and how long their lease still holds."""

    empty = "no worker lives; start one: duly worker module:app"
    show_list(settings, listing, lambda desk: desk.workers(), COLUMNS, empty, at_desk)


@workers.command("drain")
@click.argument("worker_id", metavar="WORKER", type=click.UUID)
@click.option("--undo", is_flag=True, help="Let it take runs again.")
@json_option
@with_settings("url")
def drain(settings: Settings, worker_id: UUID, undo: bool, as_json: bool) -> None:
    """Ask WORKER, given by its id, to take nothing more: it finishes what it runs, and lives on until it is stopped."""
    asyncio.run(_drain(settings, worker_id, is_draining=not undo, as_json=as_json))


async def _drain(settings: Settings, worker_id: UUID, *, is_draining: bool, as_json: bool) -> None:
    async with at_desk(settings) as desk:
        await desk.drain(worker_id, is_draining=is_draining)
    if as_json:
        print_json({"worker_id": worker_id, "is_draining": is_draining})
    elif is_draining:
        say(f"worker {worker_id} takes nothing more, and finishes what it runs")
    else:
        say(f"worker {worker_id} takes runs again")
