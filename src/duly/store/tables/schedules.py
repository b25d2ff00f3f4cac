"""Schedules: their definitions by cohort, calendars, backfills, and actions of people on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.triggers.schedule.planning import Skip
from duly.domain.triggers.zones import zones
from duly.store.connection.database import Database
from duly.store.connection.statements import columns, json_of, load

SQL = load("tables/schedules")


class Definition(msgspec.Struct, frozen=True):
    """The definition that a cohort's jobs share, and the calendars it names."""

    cohort: int
    schedule: str
    calendars: dict[str, Any]


async def definitions(database: Database, cohorts: Sequence[int]) -> list[Definition]:
    """Read the definition of each cohort from one of its jobs."""
    rows = await database.fetch(SQL["definitions"], list(cohorts))
    return [Definition(cohort, schedule, _calendars(found)) for cohort, schedule, found in rows]


async def pause(
    database: Database,
    job_id: UUID,
    generation: int,
    reason: str,
    seen: datetime,
    staged: Sequence[datetime],
    *,
    settles: bool | None,
) -> str:
    """Pause a schedule: paused, already, again, over, or held by a worker unless the caller accepts that.

    With `settles` None the workers have not been asked, and a run that may have started counts as held, too.
    """
    return await _answer(database, "pause", job_id, generation, reason, seen, list(staged), settles)


async def give_reason(database: Database, job_id: UUID, before: str, reason: str) -> None:
    """Change the reason of a pause."""
    await database.execute(SQL["give_reason"], job_id, before, reason)


async def resume(
    database: Database,
    job_id: UUID,
    generation: int,
    seen: datetime,
    next_at: datetime | None,
    window: int,
    skips: Sequence[Skip],
) -> str:
    """Resume a schedule: active, completed, already, again, or over."""
    return await _answer(
        database, "resume", job_id, generation, seen, next_at, window, json_of(skips), zones.database_version()
    )


async def skip_next(
    database: Database,
    job_id: UUID,
    generation: int,
    seen: datetime,
    next_at: datetime | None,
    window: int,
    staged: Sequence[datetime],
    skips: Sequence[Skip],
) -> tuple[str, datetime | None]:
    """Skip one occurrence: skipped with its moment, again, over, or held. `skips` go with the pending one."""
    values = (job_id, generation, seen, next_at, window, list(staged), zones.database_version(), json_of(skips))
    row = await database.fetch_one(SQL["skip_next"], *values)
    return row[0], row[1]


async def trigger(
    database: Database, job_id: UUID, key: str, payload: str | None, *, allow_overlap: bool
) -> tuple[UUID, str]:
    """Run a schedule's job now: the run, and ready, blocked, skipped_overlap, replayed, over, or held."""
    row = await database.fetch_one(SQL["trigger"], job_id, key, payload, allow_overlap, False)
    return row[0], row[1]


class Retiming(msgspec.Struct, frozen=True):
    """A next fire to be armed again, with the version of its job and the moment that were read."""

    job_id: UUID
    generation: int
    seen: datetime
    cohort: int
    next_at: datetime | None
    window: int


async def retime(database: Database, timings: Sequence[Retiming], skips: Mapping[UUID, Sequence[Skip]]) -> set[UUID]:
    """Arm next fires again, and record what that skips. One that has moved on is missing from the answer."""
    fires = columns(timings, "job_id", "generation", "seen", "cohort", "next_at", "window")
    recorded = [json_of(skips.get(one.job_id, ())) for one in timings]
    return {row[0] for row in await database.fetch(SQL["retime"], *fires, recorded, zones.database_version())}


class Backfill(msgspec.Struct, frozen=True):
    """A span of occurrences in the backfill lane."""

    backfill_id: UUID
    job_id: UUID
    tenant: int
    origin: str
    state: str
    from_at: datetime
    to_at: datetime
    cursor_at: datetime
    rate: float
    total: int
    created: int
    due_at: datetime
    requested_at: datetime


class LaneWork(msgspec.Struct, frozen=True):
    """A backfill that may go on, with the inputs of its occurrences."""

    backfill: Backfill
    schedule: str | None
    every_seconds: int | None
    anchor_at: datetime | None
    calendars: dict[str, Any]
    waiting: int
    is_recovered: bool = False


async def lane_work(database: Database, shards: Sequence[int], limit: int) -> list[LaneWork]:
    """Read the backfills of the held shards that may create something now, the oldest of each job."""
    rows = await database.fetch(SQL["lane_work"], list(shards), limit)
    return [
        LaneWork(Backfill(*row[:13]), row[13], row[14], row[15], _calendars(row[16]), row[17], row[18]) for row in rows
    ]


async def lane_due(database: Database, after: datetime) -> datetime | None:
    """Return when a backfill may go on, after a moment."""
    found: datetime | None = await database.fetchval(SQL["lane_due"], after)
    return found


class BackfillStep(msgspec.Struct, frozen=True):
    """One step of a backfill: where it stood, where it stands after (None: it is done), and the runs it creates.

    For `wait` nothing more of its job is created.
    """

    backfill_id: UUID
    seen: datetime
    cursor: datetime | None
    wait: timedelta
    moments: Sequence[datetime]


async def create_backfills(database: Database, created: Sequence[BackfillStep]) -> int:
    """Create occurrences in the lane. Returns how many runs there are now."""
    runs = [(one.backfill_id, moment) for one in created for moment in one.moments]
    ids, moments = [backfill_id for backfill_id, _ in runs], [moment for _, moment in runs]
    stood, counts = columns(created, "backfill_id", "seen", "cursor", "wait"), [len(one.moments) for one in created]
    return int(await database.fetchval(SQL["create_backfills"], *stood, counts, ids, moments))


async def submit_backfill(
    database: Database,
    backfill_id: UUID,
    job_id: UUID,
    start: datetime,
    end: datetime,
    rate: float,
    total: int,
    previous: datetime | None,
    slots: int,
) -> bool:
    """Request the occurrences of a span, `slots` at once, after the occurrence `previous`. False: no such job."""
    values = (backfill_id, job_id, start, end, rate, total, previous, slots)
    return bool(await database.fetchval(SQL["submit_backfill"], *values))


async def tenant_of_backfill(database: Database, backfill_id: UUID) -> int | None:
    """Return the tenant of a backfill."""
    tenant: int | None = await database.fetchval(SQL["tenant_of_backfill"], backfill_id)
    return tenant


async def cancel_backfill(database: Database, backfill_id: UUID) -> int | None:
    """Stop a backfill. Returns how many of its runs were removed; None: it was not active."""
    found = await database.fetchval(SQL["cancel_backfill"], backfill_id)
    return None if found is None else int(found)


async def backfills(database: Database, job_id: UUID | None, limit: int) -> list[Backfill]:
    """Read backfills, newest first."""
    return [Backfill(*row) for row in await database.fetch(SQL["backfills"], job_id, limit)]


async def backfills_of_job(
    database: Database, tenant: int, job_id: UUID, before: tuple[datetime, UUID], limit: int
) -> list[dict[str, Any]]:
    """Read the backfills of a tenant's job that were requested before a position, the newest first."""
    return [dict(row) for row in await database.fetch(SQL["backfills_of_job"], tenant, job_id, *before, limit)]


async def backfills_of_tenant(
    database: Database, tenant: int, before: tuple[datetime, UUID], limit: int
) -> list[dict[str, Any]]:
    """Read the backfills of a tenant that were requested before a position, the newest first."""
    return [dict(row) for row in await database.fetch(SQL["backfills_of_tenant"], tenant, *before, limit)]


async def find_backfill(database: Database, tenant: int, backfill_id: UUID) -> dict[str, Any] | None:
    """Read one backfill of a tenant."""
    return await database.fetch_row_with(dict, SQL["find_backfill"], tenant, backfill_id)


async def put_calendar(database: Database, tenant: int, name: str, definition: str) -> None:
    """Store a calendar, new or changed, and beside it its former definition, until it is settled."""
    await database.execute(SQL["put_calendar"], tenant, name, definition)


async def calendar_settled(database: Database, tenant: int, name: str, definition: str) -> None:
    """Delete a calendar's former definition: all that use it are timed by the new one."""
    await database.execute(SQL["calendar_settled"], tenant, name, definition)


async def earlier_calendars(database: Database, tenant: int) -> dict[str, list[Any]]:
    """Read former definitions of calendars while some jobs may be timed by them, the newest first."""
    rows = await database.fetch(SQL["earlier_calendars"], tenant)
    return {name: msgspec.json.decode(definitions) for name, definitions in rows}


async def drop_calendar(database: Database, tenant: int, name: str) -> str:
    """Delete a calendar: dropped, missing, or the name of a job that uses it."""
    return await _answer(database, "drop_calendar", tenant, name)


async def calendars(database: Database, tenant: int, names: Sequence[str] | None) -> dict[str, Any]:
    """Read calendars by name, or all."""
    rows = await database.fetch(SQL["calendars"], tenant, None if names is None else list(names))
    return {name: msgspec.json.decode(definition) for name, definition in rows}


class Pending(msgspec.Struct, frozen=True):
    """A schedule's next fire, as read; `name` is that of its job, or its id where it has none."""

    job_id: UUID
    name: str
    generation: int
    scheduled_at: datetime
    previous_scheduled_at: datetime | None
    schedule: str
    created_at: datetime
    read_at: datetime
    accountable_from: datetime
    cohort: int | None


async def using_calendar(database: Database, tenant: int, name: str, after: UUID | None, limit: int) -> list[Pending]:
    """Read the next fires of the schedules that use a calendar, in order of their ids."""
    return [Pending(*row) for row in await database.fetch(SQL["using_calendar"], tenant, name, after, limit)]


async def left_out(database: Database, job_ids: Sequence[UUID]) -> dict[UUID, datetime]:
    """Read the last occurrence of each job that was skipped on request and is yet to come."""
    return {row[0]: row[1] for row in await database.fetch(SQL["left_out"], list(job_ids))}


def _calendars(found: str | None) -> dict[str, Any]:
    return {} if found is None else msgspec.json.decode(found, type=dict[str, Any])


async def _answer(database: Database, name: str, *arguments: Any) -> str:
    return str(await database.fetchval(SQL[name], *arguments))
