"""Definitions, and the way in: statements that create jobs and read them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.job import Schedule, Submission
from duly.store.database import Connection, Database
from duly.store.statements import load

SQL = load("jobs")


class Submitted(msgspec.Struct, frozen=True):
    """The store's answer: durable once the transaction commits. `replayed`: the key was seen before, nothing new was made."""

    job_id: UUID
    scheduled_at: datetime
    replayed: bool


async def submit(
    connection: Connection,
    tenant: int,
    key: str,
    jobs: Sequence[Submission],
    body_hash: bytes | None,
    horizon: timedelta,
) -> list[Submitted]:
    """Insert one-shots under one key."""
    rows = await connection.fetch(SQL["submit"], *submit_arguments(tenant, key, jobs, body_hash, horizon))
    return [Submitted(*row) for row in rows]


async def submit_one(connection: Connection, tenant: int, key: str, job: Submission, horizon: timedelta) -> Submitted:
    """Insert one one-shot under a key."""
    values = (job.handler, job.payload, job.queue, job.priority, job.at, job.delay, job.options)
    rows = await connection.fetch(SQL["submit_one"], tenant, key, *values, horizon)
    return Submitted(*rows[0])


def submit_arguments(
    tenant: int, key: str, jobs: Sequence[Submission], body_hash: bytes | None, horizon: timedelta
) -> tuple[Any, ...]:
    """Lay out one-shots as the arrays that `duly.submit_v1` takes."""
    return (
        tenant,
        key,
        [job.handler for job in jobs],
        [job.payload for job in jobs],
        [job.queue for job in jobs],
        [job.priority for job in jobs],
        [job.at for job in jobs],
        [job.delay for job in jobs],
        [job.options for job in jobs],
        body_hash,
        horizon,
    )


async def submit_schedule(connection: Connection, tenant: int, key: str, schedule: Schedule) -> Submitted:
    """Insert a recurring job and its next-fire timer."""
    rows = await connection.fetch(SQL["submit_schedule"], *schedule_arguments(tenant, key, schedule))
    return Submitted(*rows[0])


def schedule_arguments(tenant: int, key: str, schedule: Schedule) -> tuple[Any, ...]:
    """Lay out a recurring job as `duly.submit_schedule_v1` takes it."""
    return (
        tenant,
        key,
        schedule.name,
        schedule.handler,
        schedule.payload,
        schedule.queue,
        schedule.priority,
        schedule.every,
        schedule.anchor,
        schedule.options,
    )


async def cancel_schedule(database: Database, job_id: UUID) -> bool:
    """End a schedule through its timer. False: the timer was not there at this moment."""
    return bool(await database.fetch(SQL["cancel_schedule"], job_id))


async def staged_runs(database: Database, job_id: UUID) -> list[UUID]:
    """Give the runs of a job that are in a box."""
    return [row[0] for row in await database.fetch(SQL["staged_runs"], job_id)]


async def held_ahead(database: Database, job_id: UUID) -> list[UUID]:
    """Give the runs of a job that a worker holds ahead of their due moment."""
    return [row[0] for row in await database.fetch(SQL["held_ahead"], job_id)]


async def find(database: Database, job_id: UUID) -> dict[str, Any] | None:
    """Read one recurring job with its next fire."""
    row = await database.fetchrow(SQL["find"], job_id)
    return dict(row) if row else None


async def page(
    database: Database, tenant: int, before: UUID | None, state: str | None, limit: int
) -> list[dict[str, Any]]:
    """Read recurring jobs, newest first."""
    return [dict(row) for row in await database.fetch(SQL["page"], tenant, before, state, limit)]
