"""Figures: roll-ups by the minute, made by maintenance, and bounded reads of them and of the boxes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.runs.run_id import least_id_at
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("reads/figures")
ALL_QUEUES = ""
COUNTED_MAX = 10_000
FRONT_MAX = 200  # timers of each shard
SHOWN_MAX = 20
_DAY_LOOKS_MAX = 20_000


class Step(msgspec.Struct, frozen=True):
    """The runs that ended within one step of time. Histograms have the buckets of `domain.figures`."""

    at: datetime
    started: int
    succeeded: int
    failed: int
    timed_out: int
    lost: int
    cancelled: int
    snoozed: int
    skipped: int
    expired: int
    fenced: int
    retried: int
    dead: int
    skew: list[int]
    duration: list[int]


class Waiting(msgspec.Struct, frozen=True):
    """The backlog of a handler in a queue."""

    queue: str
    handler: str
    runs: int
    oldest_due_at: datetime


class Buried(msgspec.Struct, frozen=True):
    """The number of dead runs, how many of them within the last hour, and the reason of the last."""

    runs: int
    lately: int
    reason: str | None


class Upcoming(msgspec.Struct, frozen=True):
    """Timers that are due at one moment and repeat alike. A one-shot has neither a cohort nor an interval."""

    cohort: int | None
    every_seconds: int | None
    due_at: datetime
    timers: int
    is_cut: bool
    repeats: bool


class Quarter(msgspec.Struct, frozen=True):
    """The outcomes of a job's occurrences within a quarter of an hour."""

    at: datetime
    succeeded: int
    retried: int
    dead: int
    skipped: int
    cancelled: int


async def fold(database: Database, limit: int) -> int:
    """Move recorded ends into the roll-ups. Returns how many were moved; `limit` means: call again."""
    return int(await database.fetchval(SQL["fold"], limit))


async def series(
    session: Database, tenant: int, since: datetime, until: datetime, step: timedelta, queue: str | None, grain: str
) -> list[Step]:
    """Read the ended runs of a tenant, by steps of a whole number of grains. Empty steps are left out."""
    chosen = (tenant, grain, since, until, round(step.total_seconds()), queue or ALL_QUEUES)
    return [Step(*row) for row in await session.fetch(SQL["series"], *chosen)]


async def waiting(session: Database, tenant: int) -> list[Waiting]:
    """Read the backlog of a tenant, by queue and handler; a total above `COUNTED_MAX` means that there is more."""
    return [Waiting(*row) for row in await session.fetch(SQL["waiting"], tenant, COUNTED_MAX + 1)]


async def buried(session: Database, tenant: int) -> Buried:
    """Count a tenant's dead runs; more than `COUNTED_MAX` means that there are more."""
    return Buried(*await session.fetch_one(SQL["dead"], tenant, COUNTED_MAX + 1))


async def open_destinations(session: Database, tenant: int) -> list[dict[str, Any]]:
    """Read the destinations whose circuit is open."""
    return [dict(row) for row in await session.fetch(SQL["open_destinations"], tenant, SHOWN_MAX)]


async def failing_schedules(session: Database, tenant: int) -> list[dict[str, Any]]:
    """Read the schedules that were paused because they kept failing."""
    return [dict(row) for row in await session.fetch(SQL["paused"], tenant, SHOWN_MAX)]


async def upcoming(session: Database, tenant: int, until: datetime) -> list[Upcoming]:
    """Read a tenant's timers that are due before a moment, `FRONT_MAX` of each shard at most."""
    return [Upcoming(*row) for row in await session.fetch(SQL["upcoming"], tenant, until, FRONT_MAX)]


async def days_of_job(session: Database, tenant: int, job_id: UUID, since: datetime) -> list[Quarter]:
    """Count the outcomes of a schedule's occurrences by quarters of an hour, which add up to days of any zone."""
    arguments = (job_id, tenant, since, least_id_at(since), _DAY_LOOKS_MAX)
    return [Quarter(*row) for row in await session.fetch(SQL["days_of_job"], *arguments)]
