"""`duly queues`: what waits, how long it has waited, who serves it, and whether it is paused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from duly.cli.lazy import ListingGroup
from duly.cli.options import with_settings
from duly.cli.output import Listing, Row, json_option, listing_options, show_list
from duly.cli.pause import pause_scope, reason_option, resume_scope, told
from duly.domain.hold import Hold, Scope
from duly.settings import Settings
from duly.store import holds, ready
from duly.store import workers as store
from duly.store.database import Database

_HOLDS_TOLD_MAX = 3

COLUMNS = {
    "queue": lambda row: row["queue"],
    "ready": lambda row: row["ready"],
    "oldest": lambda row: timedelta(seconds=row["oldest_age_seconds"]) if row["ready"] else None,
    "workers": lambda row: row["workers"],
    "slots": lambda row: row["slots"],
    "state": lambda row: row["state"],
    "needs attention": lambda row: row["attention"],
}


@click.group(cls=ListingGroup)
def queues() -> None:
    """Show, pause and resume queues. Without a command: show."""


@queues.command("list")
@listing_options
@with_settings()
def list_queues(settings: Settings, listing: Listing) -> None:
    """Show what waits in each queue, and the command that would serve what nobody serves."""
    show_list(settings, listing, read_queues, COLUMNS, "no queue has work, and no worker lives")


@queues.command("pause")
@click.argument("queue", metavar="QUEUE")
@reason_option
@json_option
@with_settings()
def pause_queue(settings: Settings, queue: str, reason: str, as_json: bool) -> None:
    """Let nothing new of QUEUE start; the same as `duly pause --queue QUEUE`."""
    pause_scope(settings, Scope(queue=queue), reason, as_json=as_json)


@queues.command("resume")
@click.argument("queue", metavar="QUEUE")
@json_option
@with_settings()
def resume_queue(settings: Settings, queue: str, as_json: bool) -> None:
    """Let QUEUE go on; the same as `duly resume --queue QUEUE`."""
    resume_scope(settings, Scope(queue=queue), as_json=as_json)


async def read_queues(database: Database) -> Sequence[Row]:
    """Read every queue that has work or a worker, or is paused by its name."""
    now = await database.read_clock()
    depths = {row["queue"]: row for row in await ready.depth(database)}
    living = [row for row in await store.live(database) if row.until > row.read_at]
    unknown = await ready.unknown_handlers(database)
    standing = await holds.standing(database)
    paused = (hold.scope.queue for hold in standing if hold.scope.queue is not None)
    names = sorted({*depths, *(queue for row in living for queue in row.queues), *paused})
    return [_queue(name, depths.get(name), living, unknown, standing, now) for name in names]


def _queue(
    name: str,
    depth: Row | None,
    living: Sequence[store.WorkerRow],
    unknown: Sequence[Row],
    standing: Sequence[Hold],
    now: datetime,
) -> dict[str, Any]:
    serving = [row for row in living if name in row.queues]
    touching = [hold for hold in standing if hold.scope.touches(Scope(queue=name))]
    age = (now - depth["oldest_due_at"]).total_seconds() if depth else 0.0
    return {
        "queue": name,
        "ready": depth["runs"] if depth else 0,
        "oldest_age_seconds": max(0.0, age),
        "workers": len(serving),
        "slots": sum(row.slots for row in serving),
        "state": _state(touching),
        "paused": touching,
        "attention": _attention(name, serving, [row for row in unknown if row["queue"] == name], touching),
    }


def _state(touching: Sequence[Hold]) -> str:
    if not touching:
        return "open"
    return "paused" if any(hold.scope.tenant is None for hold in touching) else "paused for some"


def _attention(name: str, serving: Sequence[store.WorkerRow], unknown: Sequence[Row], touching: Sequence[Hold]) -> str:
    paused = [f"paused: {told(hold)}" for hold in touching[:_HOLDS_TOLD_MAX]]
    more = [f"and {len(touching) - len(paused)} pauses more"] if len(touching) > len(paused) else []
    if not serving:
        return "; ".join([*paused, *more, f"nobody serves it: duly worker module:app --queue {name}"])
    unknown_handlers = [f"no live worker knows {row['handler']} ({row['runs']} runs)" for row in unknown]
    return "; ".join([*paused, *more, *unknown_handlers])
