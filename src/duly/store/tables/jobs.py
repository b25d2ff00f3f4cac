"""Definitions: statements that create jobs and read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, overload
from uuid import UUID

import msgspec

from duly.domain.jobs.job import Recurring, Submission
from duly.domain.tenancy.audit import Actor
from duly.domain.triggers.schedule.planning import Skip
from duly.domain.triggers.schedule.schedules import Schedule
from duly.domain.triggers.schedule.timing import Timing, calendars_in, read_calendars, schedule_of
from duly.domain.triggers.zones import zones
from duly.store.boxes.options import decoded, encode
from duly.store.connection.database import Connection, Database
from duly.store.connection.statements import columns, json_of, load
from duly.store.tables import schedules

SQL = load("tables/jobs")
NEWEST_VERSION = 2_147_483_647


class Submitted(msgspec.Struct, frozen=True):
    """The store's answer: durable once the transaction commits.

    `replayed`: the key was seen before, and nothing was created. `needs_hint`: a run may be claimed at once, and it
    is not certain that the commit wakes the workers: send a hint after the commit.
    """

    job_id: UUID
    scheduled_at: datetime
    replayed: bool
    needs_hint: bool = False


async def submit(
    connection: Connection,
    tenant: int,
    key: str,
    jobs: Sequence[Submission],
    body_hash: bytes | None,
    horizon: timedelta,
) -> list[Submitted]:
    """Insert one-shots under one key."""
    statement = SQL["submit_subtasks" if any(job.options.metadata.parent for job in jobs) else "submit"]
    rows = await connection.fetch(statement, *submit_arguments(tenant, key, jobs, body_hash, horizon))
    return [Submitted(*row) for row in rows]


class Batch(Sequence[Submitted]):
    """The store's answer to one-shots that were submitted together: the ids follow that of the first one by one."""

    def __init__(self, first: Submitted, number: int) -> None:
        self._first, self._number = first, number

    def __len__(self) -> int:
        return self._number

    @overload
    def __getitem__(self, place: int) -> Submitted: ...
    @overload
    def __getitem__(self, place: slice) -> list[Submitted]: ...
    def __getitem__(self, place: int | slice) -> Submitted | list[Submitted]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(self._number))]
        job_id = UUID(int=self._first.job_id.int + range(self._number)[place])
        return msgspec.structs.replace(self._first, job_id=job_id)


async def submit_alike(
    connection: Connection,
    tenant: int,
    key: str,
    job: Submission,
    payloads: Sequence[str],
    body_hash: bytes,
    horizon: timedelta,
) -> Batch:
    """Insert one-shots that differ by their payloads alone, under one key."""
    shared = (job.queue, job.priority, job.at, job.delay, encode(job.options))
    rows = await connection.fetch(SQL["submit_alike"], tenant, key, job.handler, payloads, *shared, body_hash, horizon)
    return Batch(Submitted(*rows[0]), len(payloads))


async def submit_one(connection: Connection, tenant: int, key: str, job: Submission, horizon: timedelta) -> Submitted:
    """Insert one one-shot under a key. Only for the engine."""
    statement = SQL["submit_checked" if job.options.metadata.parent else "submit_one"]
    return await _insert(connection, statement, tenant, key, job, horizon)


async def submit_checked(
    connection: Connection, tenant: int, key: str, job: Submission, horizon: timedelta
) -> Submitted:
    """Insert one one-shot under a key, within the quotas of a request's tenant. Raises NotFound and QuotaReached."""
    return await _insert(connection, SQL["submit_checked"], tenant, key, job, horizon)


async def create_one_shot(
    connection: Connection, tenant: int, key: str, job: Submission, horizon: timedelta, actor: Actor
) -> Submitted:
    """Insert one one-shot under a key and its audit entry, within the quotas of its tenant. Raises QuotaReached."""
    actor_values = (actor.kind, actor.id, actor.name, actor.request_id)
    return await _insert(connection, SQL["create_one_shot"], tenant, key, job, horizon, *actor_values)


async def _insert(
    connection: Connection,
    statement: str,
    tenant: int,
    key: str,
    job: Submission,
    horizon: timedelta,
    *actor_values: str | None,
) -> Submitted:
    values = (job.handler, job.payload, job.queue, job.priority, job.at, job.delay, encode(job.options))
    rows = await connection.fetch(statement, tenant, key, *values, horizon, *actor_values)
    return Submitted(*rows[0])


async def create_one_shots(
    connection: Connection,
    tenant: int,
    key: str,
    jobs: Sequence[Submission],
    body_hash: bytes,
    horizon: timedelta,
    actors: Sequence[Actor],
) -> list[Submitted]:
    """Insert one-shots under one key, each with an audit entry of its own, as `create_one_shot` does."""
    values = submit_arguments(tenant, key, jobs, body_hash, horizon)
    actor_values = columns(actors, "kind", "id", "name", "request_id")
    rows = await connection.fetch(SQL["create_one_shots"], *values, *actor_values)
    return [Submitted(*row) for row in rows]


async def change_one_shot(
    database: Database, tenant: int, job_id: UUID, version: int, job: Submission, horizon: timedelta
) -> bool:
    """Change a one-shot that waits for its first attempt and has a version. False: no such one-shot waits."""
    values = (job.handler, job.payload, job.queue, job.priority, job.at, encode(job.options))
    return bool(await database.fetchval(SQL["change_one_shot"], tenant, job_id, version, *values, horizon))


async def purge_job(database: Database, tenant: int, job_id: UUID, limit: int) -> bool:
    """Delete the definition of an ended job, and so many runs of its history. False: it has not ended."""
    return bool(await database.fetchval(SQL["purge_job"], tenant, job_id, limit))


def submit_arguments(
    tenant: int, key: str, jobs: Sequence[Submission], body_hash: bytes | None, horizon: timedelta
) -> tuple[Any, ...]:
    """Return one-shots as the arrays that `duly.submit_many` takes."""
    return (
        tenant,
        key,
        *columns(jobs, "handler", "payload", "queue", "priority", "at", "delay"),
        [encode(job.options) for job in jobs],
        body_hash,
        horizon,
    )


class Prepared(msgspec.Struct, frozen=True):
    """The inputs of compiling a schedule: the id its job will have, the time, and the calendars it names.

    `least_period` is the minimum distance of its occurrences, in seconds. If the same was submitted under the key
    before, `before` is the answer to that, and id and time are those of then.
    """

    job_id: UUID
    now: datetime
    calendars: str | None
    before: Submitted | None
    least_period: int | None


async def prepare(
    connection: Connection, tenant: int, key: str, body_hash: bytes, calendars: Sequence[str]
) -> Prepared:
    """Read the inputs of compiling a schedule."""
    rows = await connection.fetch(SQL["prepare"], tenant, key, list(calendars), body_hash)
    job_id, now, found, earlier_id, scheduled_at, created_at, least_period = rows[0]
    if earlier_id is None:
        return Prepared(job_id, now, found, None, least_period)
    before = Submitted(UUID(str(earlier_id)), scheduled_at, replayed=True)  # a caller's driver may return it as text
    return Prepared(before.job_id, created_at, found, before, None)  # an accepted schedule is not judged again


async def least_period(connection: Connection, tenant: int) -> int | None:
    """Read the minimum distance of occurrences of a tenant's schedules, in seconds; None: a second."""
    rows = await connection.fetch(SQL["least_period"], tenant)
    return None if rows[0][1] is None else int(rows[0][1])


async def submit_recurring(
    connection: Connection, tenant: int, key: str, job_id: UUID | None, job: Recurring, timing: Timing
) -> Submitted:
    """Insert a recurring job and its next-fire timer; without an id the database assigns one."""
    identity = (job.digest(), job_id, job.name, job.owner, job.source)
    values = (tenant, key, *identity, *_definition(job), *_timing(timing))
    rows = await connection.fetch(SQL["submit_schedule"], *values, zones.database_version())
    return Submitted(*rows[0][:3])


def _definition(job: Recurring) -> tuple[Any, ...]:
    return job.handler, job.payload, job.queue, job.priority, encode(job.options)


def _timing(timing: Timing) -> tuple[Any, ...]:
    return (
        timing.schedule,
        timing.cohort,
        timing.every_seconds,
        timing.anchor_at,
        timing.first_at,
        timing.window,
        timing.jitter,
        timing.overlap,
        timing.overlap_limit,
        timing.max_runs,
        timing.grace_seconds,
        timing.watch,
    )


class Edit(msgspec.Struct, frozen=True):
    """The store's answer to an edit: edited, over, or again: it has changed, or a worker holds more of it than was known."""

    answer: str
    floor: datetime | None


async def edit(
    database: Database,
    job_id: UUID,
    generation: int,
    job: Recurring,
    timing: Timing,
    seen: datetime,
    staged: Sequence[datetime],
    floor: datetime | None,
    skips: Sequence[Skip],
    read_at: datetime,
) -> Edit:
    """Change a recurring job as it was read at a moment. Without a first moment the pending fire stays."""
    identity = (job_id, generation, job.digest(), job.name, job.source)
    values = (
        *identity,
        *_definition(job),
        *_timing(timing),
        seen,
        list(staged),
        floor,
        json_of(skips),
        read_at,
    )
    row = await database.fetch_one(SQL["edit"], *values, zones.database_version())
    return Edit(row[0], row[1])


async def cancel_schedule(database: Database, job_id: UUID, seen: datetime, skips: Sequence[Skip]) -> bool:
    """End a schedule through its timer, as it was read. False: the timer was not there, or had moved on."""
    return bool(await database.fetch(SQL["cancel_schedule"], job_id, seen, json_of(skips)))


async def waiting_outside(database: Database, job_id: UUID, limit: int) -> list[UUID]:
    """Return runs of a schedule that wait in a box and occupy no slot of a concurrency key."""
    return [row[0] for row in await database.fetch(SQL["waiting_outside"], job_id, limit)]


async def waiting_runs(database: Database, job_id: UUID, limit: int) -> list[UUID]:
    """Return runs of a schedule that wait in a box."""
    return [row[0] for row in await database.fetch(SQL["waiting_runs"], job_id, limit)]


async def leased_runs(database: Database, job_id: UUID) -> list[UUID]:
    """Return the leased runs of a job."""
    return [row[0] for row in await database.fetch(SQL["leased_runs"], job_id)]


async def due_unstarted(database: Database, job_id: UUID, limit: int) -> list[UUID]:
    """List runs of a schedule that are due and have not started, in any box."""
    return [row[0] for row in await database.fetch(SQL["due_unstarted"], job_id, limit)]


async def leased_ahead(database: Database, job_id: UUID) -> list[UUID]:
    """Return the runs of a job that a worker holds ahead of their due moment."""
    return [row[0] for row in await database.fetch(SQL["leased_ahead"], job_id)]


async def find(database: Database, job_id: UUID) -> dict[str, Any] | None:
    """Read one recurring job with its next fire."""
    return await database.fetch_row_with(decoded, SQL["find"], job_id)


async def schedule_of_job(database: Database, job: Mapping[str, Any]) -> Schedule:
    """Compile the schedule of a job that was read."""
    names = calendars_in({} if job["schedule"] is None else msgspec.json.decode(job["schedule"]))
    calendars = await schedules.calendars(database, job["tenant"], names) if names else {}
    return schedule_of(job["schedule"], job["every_seconds"], job["anchor_at"], read_calendars(calendars))


async def versions(
    database: Database, tenant: int, job_id: UUID, limit: int, before: int = NEWEST_VERSION
) -> list[dict[str, Any]]:
    """Read versions of the definition of a tenant's job before a version, the newest first; the current one is the first."""
    return [decoded(row) for row in await database.fetch(SQL["versions"], tenant, job_id, before, limit)]
