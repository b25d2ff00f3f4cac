"""Retention: rows that are dropped when they are no longer kept, and the room that dropped rows have left."""

from __future__ import annotations

from datetime import timedelta

from duly.store.boxes import history, leased, ready
from duly.store.connection.database import Database
from duly.store.reads import changes, figures
from duly.store.tables import dependencies, destinations, events, shards, workers, workflows, zones
from duly.store.tenancy import answers, audit, browser_sessions

_FORGET = {
    "answers": answers.SQL["forget"],
    "audit": audit.SQL["forget"],
    "checkpoints": history.SQL["forget_checkpoints"],  # of runs that have ended
    "departed": workers.SQL["forget_departed"],  # workers
    "destinations": destinations.SQL["forget"],  # that are not used
    "events": events.SQL["forget_events"],
    "job_changes": changes.OF_JOBS["forget"],
    "keys": history.SQL["forget_keys"],  # of idempotent submits
    "payloads": history.SQL["forget_payloads"],  # of one-shots in no box any more, when the records of their ends go
    "progress": history.SQL["forget_progress"],  # of runs that have ended
    "rollups": figures.SQL["forget"],
    "schedulers": shards.SQL["forget_expired"],
    "sessions": browser_sessions.SQL["forget"],
    "subtasks": history.SQL["forget_subtasks"],  # the way to those that ended long ago
    "workflow_changes": changes.OF_WORKFLOWS["forget"],
    "workflows": workflows.SQL["forget_workflows"],
    "zone_moves": zones.SQL["forget_moves"],
}
# Autovacuum comes by too seldom for what every run writes and deletes.
_VACUUM = (
    *(ready.SQL["vacuum"], leased.SQL["vacuum"], workflows.SQL["vacuum_endings"], dependencies.SQL["vacuum"]),
    figures.SQL["vacuum"],
)


async def forget(database: Database, what: str, *bounds: timedelta | int) -> int:
    """Drop rows that are no longer kept; the bounds say for how long and how many at most. Returns how many, where it is told."""
    return int(await database.fetchval(_FORGET[what], *bounds) or 0)


async def vacuum(database: Database) -> None:
    """Clear the dead rows of the tables whose rows come and go with every run."""
    for statement in _VACUUM:
        await database.execute(statement)


async def shorten(database: Database, hollow_bytes: int) -> None:
    """Give back to the disk what a flood has left behind; while runs pass through, the lock it takes would hold them up."""
    for box in (ready, leased):
        if await database.fetchval(box.SQL["is_hollow"], hollow_bytes):
            await database.execute(box.SQL["shorten"])
