"""`duly workers`: who lives; and who is to take nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from itertools import zip_longest
from uuid import UUID

import click

from duly.cli.client import connected
from duly.cli.flags.settings import with_settings
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Listing, json_option, listing_options, print_json, show_list
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.clock import host_now
from duly.domain.diagnosis.explain.words import spoken
from duly.settings import Settings
from duly.wire.queues import Worker


def _weighed(queues: Sequence[str], weights: Sequence[int]) -> list[str]:
    """Name queues as they are given to a worker: with their weight where it is not 1."""
    pairs = zip_longest(queues, weights[: len(queues)], fillvalue=1)
    return [f"{queue}" if weight == 1 else f"{queue}={weight}" for queue, weight in pairs]


def _state(worker: Worker) -> str:
    """Say whether a worker serves; of one that stands still, for how long and in which handlers."""
    if worker.stalled_at is not None:
        where = f" in {', '.join(worker.stalled_in)}" if worker.stalled_in else ""
        return f"stalled{where} for {spoken(host_now() - worker.stalled_at)}"
    return "draining" if worker.is_draining else "serving"


COLUMNS = {
    "id": lambda worker: worker.worker_id,
    "name": lambda worker: worker.name,
    "version": lambda worker: worker.version,
    "queues": lambda worker: _weighed(worker.queues, worker.weights),
    "handlers": lambda worker: worker.handlers,
    "slots": lambda worker: worker.slots,
    "up for": lambda worker: host_now() - worker.started_at,
    "state": _state,
    "lease": lambda worker: timedelta(seconds=worker.lease_seconds_left),
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

    async def read(client: AsyncClient) -> list[Worker]:
        return [worker async for worker in client.workers.list()]

    show_list(settings, listing, read, COLUMNS, empty)


@workers.command("drain")
@click.argument("worker_id", metavar="WORKER", type=click.UUID)
@click.option("--undo", is_flag=True, help="Let it take runs again.")
@json_option
@with_settings("url")
def drain(settings: Settings, worker_id: UUID, undo: bool, as_json: bool) -> None:
    """Ask WORKER, given by its id, to take nothing more: it finishes what it runs, and lives on until it is stopped."""
    asyncio.run(_drain(settings, worker_id, is_draining=not undo, as_json=as_json))


async def _drain(settings: Settings, worker_id: UUID, *, is_draining: bool, as_json: bool) -> None:
    async with connected(settings) as client:
        await (client.workers.drain(worker_id) if is_draining else client.workers.resume(worker_id))
    if as_json:
        print_json({"worker_id": worker_id, "is_draining": is_draining})
    elif is_draining:
        say(f"worker {worker_id} takes nothing more, and finishes what it runs")
    else:
        say(f"worker {worker_id} takes runs again")
