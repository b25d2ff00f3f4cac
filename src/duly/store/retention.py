"""Retention: deletion of rows that are no longer kept, and of the space that they leave."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum, unique

from duly.store.boxes import history, leased, ready
from duly.store.connection.database import Database
from duly.store.reads import changes, figures
from duly.store.tables import dependencies, destinations, events, notifications, shards, workers, workflows, zones
from duly.store.tenancy import answers, audit, browser_sessions


@unique
class Expiring(Enum):
    """Rows that carry their own expiry."""

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
    NOTIFICATIONS = notifications.SQL["forget"]  # with their deliveries
    ROLLUPS = figures.SQL["forget"]
    SUBTASKS = history.SQL["forget_subtasks"]  # index entries of those that ended long ago
    WORKFLOW_CHANGES = changes.OF_WORKFLOWS["forget"]
    WORKFLOWS = workflows.SQL["forget_workflows"]
    ZONE_MOVES = zones.SQL["forget_moves"]


# Autovacuum runs too seldom for tables that every run writes to and deletes from.
_VACUUM = (
    *(ready.SQL["vacuum"], leased.SQL["vacuum"], workflows.SQL["vacuum_endings"], dependencies.SQL["vacuum"]),
    figures.SQL["vacuum"],
)


async def forget_expired(database: Database, rows: Expiring, limit: int) -> None:
    """Delete rows that have expired, so many at most."""
    await database.execute(rows.value, limit)


async def forget_older(database: Database, rows: Aging, kept: timedelta, limit: int) -> int:
    """Delete rows that are older than their retention, so many at most. Returns how many, where the statement reports it."""
    return int(await database.fetchval(rows.value, kept, limit) or 0)


async def forget_payloads(database: Database, succeeded: timedelta, failed: timedelta, limit: int) -> None:
    """Delete payloads of one-shots that are in no box any more, so many at most, together with the records of their ends."""
    await database.execute(history.SQL["forget_payloads"], succeeded, failed, limit)


async def forget_expired_workers(database: Database) -> None:
    """Delete the records of workers that expired more than a day ago and hold nothing."""
    await database.execute(workers.SQL["forget_departed"])


async def forget_expired_schedulers(database: Database) -> None:
    """Delete the records of schedulers that expired more than a minute ago."""
    await database.execute(shards.SQL["forget_expired"])


async def vacuum(database: Database) -> None:
    """Vacuum the tables whose rows come and go with every run."""
    for statement in _VACUUM:
        await database.execute(statement)


async def shorten(database: Database, hollow_bytes: int) -> None:
    """Return to the disk the space that a flood has left; while runs pass through, its lock would delay them."""
    for box in (ready, leased):
        if await database.fetchval(box.SQL["is_hollow"], hollow_bytes):
            await database.execute(box.SQL["shorten"])
