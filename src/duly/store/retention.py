"""Retention: rows that are dropped when they are no longer kept, and the room that dropped rows have left."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum, unique

from duly.store.boxes import history, leased, ready
from duly.store.connection.database import Database
from duly.store.reads import changes, figures
from duly.store.tables import dependencies, destinations, events, shards, workers, workflows, zones
from duly.store.tenancy import answers, audit, browser_sessions


@unique
class Expiring(Enum):
    """Rows whose time to go is known from themselves."""

    ANSWERS = answers.SQL["forget"]
    CHECKPOINTS = history.SQL["forget_checkpoints"]  # of runs that have ended
    KEYS = history.SQL["forget_keys"]  # of idempotent submits
    PROGRESS = history.SQL["forget_progress"]  # of runs that have ended
    SESSIONS = browser_sessions.SQL["forget"]


@unique
class Aging(Enum):
    """Rows that are kept for a span of time."""

    AUDIT = audit.SQL["forget"]
    DESTINATIONS = destinations.SQL["forget"]  # that are not used
    EVENTS = events.SQL["forget_events"]
    JOB_CHANGES = changes.OF_JOBS["forget"]
    ROLLUPS = figures.SQL["forget"]
    SUBTASKS = history.SQL["forget_subtasks"]  # the way to those that ended long ago
    WORKFLOW_CHANGES = changes.OF_WORKFLOWS["forget"]
    WORKFLOWS = workflows.SQL["forget_workflows"]
    ZONE_MOVES = zones.SQL["forget_moves"]


# Autovacuum comes by too seldom for what every run writes and deletes.
_VACUUM = (
    *(ready.SQL["vacuum"], leased.SQL["vacuum"], workflows.SQL["vacuum_endings"], dependencies.SQL["vacuum"]),
    figures.SQL["vacuum"],
)


async def forget_expired(database: Database, rows: Expiring, limit: int) -> None:
    """Drop rows that have expired, so many at most."""
    await database.execute(rows.value, limit)


async def forget_older(database: Database, rows: Aging, kept: timedelta, limit: int) -> int:
    """Drop rows that are older than they are kept, so many at most. Returns how many, where the statement tells it."""
    return int(await database.fetchval(rows.value, kept, limit) or 0)


async def forget_payloads(database: Database, succeeded: timedelta, failed: timedelta, limit: int) -> None:
    """Drop payloads of one-shots in no box any more, so many at most, when the records of their ends go."""
    await database.execute(history.SQL["forget_payloads"], succeeded, failed, limit)


async def forget_expired_workers(database: Database) -> None:
    """Drop the records of workers that expired more than a day ago and hold nothing any more."""
    await database.execute(workers.SQL["forget_departed"])


async def forget_expired_schedulers(database: Database) -> None:
    """Drop the records of schedulers that expired more than a minute ago."""
    await database.execute(shards.SQL["forget_expired"])


async def vacuum(database: Database) -> None:
    """Clear the dead rows of the tables whose rows come and go with every run."""
    for statement in _VACUUM:
        await database.execute(statement)


async def shorten(database: Database, hollow_bytes: int) -> None:
    """Give back to the disk what a flood has left behind; while runs pass through, the lock it takes would hold them up."""
    for box in (ready, leased):
        if await database.fetchval(box.SQL["is_hollow"], hollow_bytes):
            await database.execute(box.SQL["shorten"])
