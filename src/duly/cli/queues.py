"""`duly queues`: what waits, how long it has waited, and who serves it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from duly.cli.options import with_settings
from duly.cli.output import Listing, Row, listing_options, show_list
from duly.settings import Settings
from duly.store import ready
from duly.store import workers as store
from duly.store.database import Database

COLUMNS = {
    "queue": lambda row: row["queue"],
    "ready": lambda row: row["ready"],
    "oldest": lambda row: timedelta(seconds=row["oldest_age_seconds"]) if row["ready"] else None,
    "workers": lambda row: row["workers"],
    "slots": lambda row: row["slots"],
    "needs attention": lambda row: row["attention"],
}


@click.command
@listing_options
@with_settings()
def queues(settings: Settings, listing: Listing) -> None:
    """Show what waits in each queue, and the command that would serve what nobody serves."""
    show_list(settings, listing, read_queues, COLUMNS, "no queue has work, and no worker lives")


async def read_queues(database: Database) -> Sequence[Row]:
    """Read every queue that has work or a worker."""
    now = await database.read_clock()
    depths = {row["queue"]: row for row in await ready.depth(database)}
    living = [row for row in await store.live(database) if row.until > row.read_at]
    unknown = await ready.unknown_handlers(database)
    names = sorted({*depths, *(queue for row in living for queue in row.queues)})
    return [_queue(name, depths.get(name), living, unknown, now) for name in names]


def _queue(
    name: str, depth: Row | None, living: Sequence[store.WorkerRow], unknown: Sequence[Row], now: datetime
) -> dict[str, Any]:
    serving = [row for row in living if name in row.queues]
    age = (now - depth["oldest_due_at"]).total_seconds() if depth else 0.0
    return {
        "queue": name,
        "ready": depth["runs"] if depth else 0,
        "oldest_age_seconds": max(0.0, age),
        "workers": len(serving),
        "slots": sum(row.slots for row in serving),
        "attention": _attention(name, serving, [row for row in unknown if row["queue"] == name]),
    }


def _attention(name: str, serving: Sequence[store.WorkerRow], unknown: Sequence[Row]) -> str:
    if not serving:
        return f"nobody serves it: duly worker module:app --queue {name}"
    return "; ".join(f"no live worker knows {row['handler']} ({row['runs']} runs)" for row in unknown)
