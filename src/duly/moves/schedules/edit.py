"""Edit: change a recurring job. Runs that have not started are made again by the new definition; nothing fires twice.

An edit that keeps the timing keeps the pending fire. Otherwise the new timing counts from the edit on, and what the old
one had not fired by then is recorded. An edit that changes nothing makes no version and no audit entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.errors import DeclaredInCode, JobEnded, VersionChanged
from duly.domain.jobs.declaration import OWNER
from duly.domain.jobs.job import Recurring
from duly.domain.jobs.unmasked import unmasked
from duly.domain.runs.options import RunOptions
from duly.domain.targets.target import WorkflowTarget
from duly.domain.tenancy.audit import Action, Subject
from duly.domain.triggers.schedule.edited_timing import Before, edited_timing
from duly.domain.triggers.schedule.options import requested_shape
from duly.domain.triggers.schedule.planning import Skip
from duly.domain.triggers.schedule.timing import Timing, calendars_in, read_calendars
from duly.domain.workflows.target import plain_node
from duly.moves.admin.audit import audited, record
from duly.moves.admin.seal import sealed
from duly.moves.recall import taking_back, unless_held, unless_unstarted
from duly.moves.schedules.retry_on_conflict import retry_on_conflict
from duly.moves.schedules.schedule import Seen, see
from duly.store.connection.database import Database
from duly.store.tables import jobs as store
from duly.store.tables import schedules


async def edit(database: Database, job_id: UUID, job: Recurring) -> int:
    """Change a person's job to a definition, from now on. Returns its new version.

    Raises NotFound, TriggerError, and DeclaredInCode when a program declares the job.
    """
    return await amend(database, job_id, lambda _: job)


async def amend(database: Database, job_id: UUID, change: Callable[[Recurring], Recurring]) -> int:
    """Change a part of a person's job, from now on; `change` is called again on conflict.

    Returns its new version. Raises NotFound, TriggerError, DeclaredInCode, and what `change` raises.
    """

    def changed(seen: Seen) -> Recurring:
        if seen.owner == OWNER:
            raise DeclaredInCode(
                f"job {seen.name!r} is declared in {seen.source}; change it there, in its decorator,"
                " and start a worker of it. Pause, resume and trigger work from here"
            )
        return change(seen.definition)

    return await _edit(database, job_id, changed)


async def edit_version(database: Database, job_id: UUID, version: int, job: Recurring) -> int:
    """Change a job that has a version. Returns its new one. Raises NotFound, VersionChanged, TriggerError."""

    def changed(seen: Seen) -> Recurring:
        if seen.generation != version:
            raise VersionChanged(f"job {job_id} has version {seen.generation}, not {version}; read it again")
        return job

    return await _edit(database, job_id, changed)


async def _edit(database: Database, job_id: UUID, changed: Callable[[Seen], Recurring]) -> int:
    return await taking_back(database, job_id, lambda silent: _edit_unless_held(database, job_id, changed, silent))


@audited
async def _edit_unless_held(
    database: Database, job_id: UUID, changed: Callable[[Seen], Recurring], silent: list[UUID] | None
) -> int:
    floor: datetime | None = None

    async def attempt() -> int | None:  # it may be edited, staged or claimed between the look and the move
        nonlocal floor
        seen = await see(database, job_id)
        job = unmasked(changed(seen), seen.payload, seen.options, seen.redact_above)
        job = sealed(database, seen.tenant, job, seen.options)
        # A program's own words are stored whatever they mean: by them its workers know that they took effect.
        may_be_same = job.owner != OWNER
        if may_be_same and _parts(seen.definition) == _parts(job):
            return seen.generation  # not retimed: its moment may be past
        timing = await _timing(database, seen, job, floor)
        differing = _differing(seen, job, timing)
        if may_be_same and not differing:
            return seen.generation
        await unless_unstarted(database, silent, has_leased_run=seen.has_leased_run)
        moments, skips = seen.staged(), list[Skip]()
        if timing.first_at is not None:
            # What the old timing has not fired, and what calendars blocked of it, is recorded.
            moments, skips = [moment for moment in moments if moment >= seen.read_at], seen.unfired("skipped_edit")
        answer = await store.edit(
            database,
            job_id,
            seen.generation,
            job,
            timing,
            seen.pending_at,
            moments,
            floor,
            skips,
            seen.read_at,
        )
        if unless_held(answer.answer) == "over":
            raise JobEnded(f"job {job_id} has ended; submit a new one")
        floor = answer.floor
        if answer.answer != "edited":
            return None
        subject = Subject("job", str(seen.job_id), job.name)
        version = seen.generation + 1
        await record(database, seen.tenant, Action.JOB_EDITED, subject, version=version, changed=differing or None)
        return version

    return await retry_on_conflict(f"job {job_id}", attempt)


def _differing(seen: Seen, job: Recurring, timing: Timing) -> list[str]:
    """Return the names of the changed parts, without values: the versions of the job have those, with secrets masked."""
    before, after = _parts(seen.definition), _parts(job)
    # As stored, so that like is compared with like.
    after["schedule"] = _plain(requested_shape(timing.schedule, timing.every_seconds))
    fires_as_before = timing.first_at is None
    if fires_as_before:  # so an anchor that is named now was its anchor
        before["schedule"], after["schedule"] = map(_without_anchor, (before["schedule"], after["schedule"]))
    is_timed_anew = {"schedule"} if not fires_as_before else set()
    return [part for part, value in before.items() if after[part] != value or part in is_timed_anew]


def _parts(job: Recurring) -> dict[str, Any]:
    return {
        **{part: getattr(job, part) for part in ("name", "handler", "queue", "priority", "owner", "source")},
        "schedule": _plain(job.schedule),
        "payload": msgspec.json.decode(job.payload),
        "options": _options(job),
    }


def _options(job: Recurring) -> RunOptions:
    """Return the options of runs, without the request's metadata."""
    known, target = job.options.but(request_id=None, traceparent=None), job.options.policy.target
    if not isinstance(target, WorkflowTarget):
        return known
    return known.but(target=msgspec.structs.replace(target, nodes=tuple(map(plain_node, target.nodes))))


def _plain(shape: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of a schedule what is null."""
    trigger = shape.get("trigger")
    inner = {} if not isinstance(trigger, Mapping) else {"trigger": _said(trigger)}
    return _said(shape) | inner


def _said(shape: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in shape.items() if value is not None}


def _without_anchor(shape: Mapping[str, Any]) -> dict[str, Any]:
    trigger = shape.get("trigger")
    if not isinstance(trigger, Mapping) or trigger.get("type") != "interval":
        return dict(shape)
    return {**shape, "trigger": {key: value for key, value in trigger.items() if key != "anchor"}}


async def _timing(database: Database, seen: Seen, job: Recurring, floor: datetime | None) -> Timing:
    names = calendars_in(job.schedule)
    calendars = read_calendars(await schedules.calendars(database, seen.tenant, names) if names else {})
    before = Before(seen.schedule, seen.cohort, seen.every_seconds, seen.anchor_at, seen.compiled, seen.pending_at)
    return edited_timing(
        before,
        job.schedule,
        job_id=str(seen.job_id),
        now=seen.read_at,
        floor=floor,
        calendars=calendars,
        least_period=seen.least_period,
    )
