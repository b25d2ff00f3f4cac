"""Submit: make jobs durable. Only inserts, because the caller's own transaction may stay open for minutes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from duly.domain.jobs.job import Recurring, Submission
from duly.domain.runs.run import HORIZON, TENANT_DEFAULT
from duly.domain.tenancy.audit import Action, Actor, Subject
from duly.domain.triggers.calendars import Calendar
from duly.domain.triggers.moments import EPOCH
from duly.domain.triggers.schedule.schedules import Schedule
from duly.domain.triggers.schedule.timing import Timing, calendars_in, is_closed, read_calendars, schedule_of, timing_of
from duly.moves.admin.audit import actor_of, audited, record
from duly.moves.admin.seal import sealed
from duly.outbound import traces
from duly.store.connection.database import Connection
from duly.store.connection.session import Session
from duly.store.tables import jobs as store
from duly.store.tables.jobs import Submitted

_encoder = msgspec.msgpack.Encoder()


async def submit(connection: Connection, job: Submission, *, key: str, tenant: int = TENANT_DEFAULT) -> Submitted:
    """Submit one. Repeated with the same key and body, it returns the same. Raises KeyConflict on another body.

    With an actor, the audit entry and the quotas of the tenant are part of the statement. Raises QuotaReached.
    """
    job, actor, began = sealed(connection, tenant, job), actor_of(connection), _began(connection)
    if actor is None:
        insert = store.submit_checked if isinstance(connection, Session) else store.submit_one
        submitted = await insert(connection, tenant, key, job, HORIZON)
    else:
        submitted = await store.create_one_shot(connection, tenant, key, job, HORIZON, actor)
    if began is not None:
        _trace(connection, tenant, began, [job], [submitted])
    return submitted


async def submit_each(
    connection: Connection, jobs: Sequence[tuple[Submission, Actor]], *, key: str, tenant: int
) -> list[Submitted]:
    """Submit one-shots of several callers in one statement, each with an audit entry of its own: all of them or none."""
    shots, actors = [sealed(connection, tenant, job) for job, _ in jobs], [actor for _, actor in jobs]
    began = _began(connection)
    submitted = await store.create_one_shots(connection, tenant, key, shots, _digest(shots), HORIZON, actors)
    if began is not None:
        _trace(connection, tenant, began, shots, submitted)
    return submitted


@audited
async def submit_many(
    connection: Connection, jobs: Sequence[Submission], *, key: str, tenant: int = TENANT_DEFAULT
) -> list[Submitted]:
    """Submit many in one transaction under one key: all of them or none."""
    if not jobs:
        return []
    jobs, began = [sealed(connection, tenant, job) for job in jobs], _began(connection)
    created = await store.submit(connection, tenant, key, jobs, _digest(jobs), HORIZON)
    if began is not None:
        _trace(connection, tenant, began, jobs, created)
    await record_jobs(connection, tenant, sum(not one.replayed for one in created))
    return created


async def submit_alike(
    connection: Connection, job: Submission, payloads: Sequence[str], *, key: str, tenant: int = TENANT_DEFAULT
) -> Sequence[Submitted]:
    """Submit one-shots that differ by their payloads alone: all of them or none. Only for programs, which have no actor."""
    if not payloads:
        return []
    job = sealed(connection, tenant, job)
    digest = _digest((job, payloads))
    return await store.submit_alike(connection, tenant, key, job, payloads, digest, HORIZON)


def _began(connection: Any) -> float | None:
    """Return when a traced submit began, by the database's clock; None: it is not traced."""
    clock = getattr(connection, "clock", None) if traces.is_on() else None
    began = float("nan") if clock is None else float(clock.now())
    return began if math.isfinite(began) else None


def _trace(
    connection: Any, tenant: int, began: float, jobs: Sequence[Submission], created: Sequence[Submitted]
) -> None:
    """Report one-shots that were created, and not found under their key."""
    for job, one in zip(jobs, created, strict=True):
        if not one.replayed:
            facts = {"duly.queue": job.queue, "duly.handler": job.handler, "duly.tenant": tenant}
            traces.submitted(one.job_id, job.options.metadata, began, connection.clock.now(), facts)


def _digest(body: object) -> bytes:
    return sha256(_encoder.encode(body)).digest()


async def record_jobs(connection: Connection, tenant: int, count: int) -> None:
    """Record that so many jobs were created by one request."""
    await record(connection, tenant, Action.JOB_CREATED, Subject("job"), count)


class Accepted(Submitted, frozen=True, kw_only=True):
    """The store's answer to a recurring job, and its compiled schedule."""

    schedule: Schedule


@audited
async def submit_recurring(
    connection: Connection, job: Recurring, *, key: str, tenant: int = TENANT_DEFAULT
) -> Accepted:
    """Submit a recurring job with its next-fire timer. Raises TriggerError when its schedule cannot be stored."""
    job = sealed(connection, tenant, job)
    accepted = await _submit_recurring(connection, job, key, tenant)
    subject, count = Subject("job", str(accepted.job_id), job.name), int(not accepted.replayed)
    await record(connection, tenant, Action.JOB_CREATED, subject, count, handler=job.handler, queue=job.queue)
    return accepted


async def _submit_recurring(connection: Connection, job: Recurring, key: str, tenant: int) -> Accepted:
    if is_closed(job.schedule) and await store.least_period(connection, tenant) is None:
        timing = timing_of(job.schedule, job_id=None, now=EPOCH, calendars={})
        submitted = await store.submit_recurring(connection, tenant, key, None, job, timing)
        return _accepted(submitted, timing, {})
    found = await store.prepare(connection, tenant, key, job.digest(), calendars_in(job.schedule))
    calendars = read_calendars(msgspec.json.decode(found.calendars or "{}"))
    timing = timing_of(
        job.schedule, job_id=str(found.job_id), now=found.now, calendars=calendars, least_period=found.least_period
    )
    # An accepted schedule is not judged again: its moment may have passed since.
    submitted = found.before or await store.submit_recurring(connection, tenant, key, found.job_id, job, timing)
    if submitted.replayed and found.before is None:  # another process was faster: take its id and its creation moment
        began, job_id = submitted.scheduled_at, str(submitted.job_id)
        timing = timing_of(job.schedule, job_id=job_id, now=began, calendars=calendars)
    return _accepted(submitted, timing, calendars)


def _accepted(submitted: Submitted, timing: Timing, calendars: Mapping[str, Calendar]) -> Accepted:
    anchor = timing.anchor_at or submitted.scheduled_at
    schedule = schedule_of(timing.schedule, timing.every_seconds, anchor, calendars)
    return Accepted(submitted.job_id, submitted.scheduled_at, submitted.replayed, schedule=schedule)
