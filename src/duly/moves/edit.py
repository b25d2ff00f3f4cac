"""Edit: change a recurring job. What no worker holds yet is made anew by the new definition; nothing fires twice.

An edit that leaves the timing as it was leaves the pending fire where it stands. Otherwise the new timing counts from the edit
on, and what the old one had not fired by then is on record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.declaration import OWNER
from duly.domain.errors import DeclaredInCode, NotFound, Unsettled, VersionChanged
from duly.domain.job import Recurring
from duly.domain.triggers.elapsed import FixedDelay
from duly.domain.triggers.on_event import is_on_event
from duly.domain.triggers.planning import arm, stretch
from duly.domain.triggers.timing import AFTER_END, Timing, calendars_in, read_calendars, schedule_of, timing_of
from duly.moves.schedule import Seen, see
from duly.store import jobs as store
from duly.store import schedules
from duly.store.database import Database

_LOOKS_MAX = 100


async def edit(database: Database, job_id: UUID, job: Recurring) -> int:
    """Change a person's job to a definition, from now on. Returns its new version.

    Raises NotFound, TriggerError, and DeclaredInCode when a program declares the job.
    """
    return await amend(database, job_id, lambda _: job)


async def amend(database: Database, job_id: UUID, change: Callable[[Recurring], Recurring]) -> int:
    """Change something about a person's job, from now on; `change` is asked again when somebody else was faster.

    Returns its new version. Raises NotFound, TriggerError, DeclaredInCode, and what `change` raises.
    """

    def changed(seen: Seen) -> Recurring:
        if seen.job["owner"] == OWNER:
            raise DeclaredInCode(
                f"job {seen.job['name']!r} is declared in {seen.job['source']}; change it there, in its decorator,"
                " and start a worker of it. Pause, resume and trigger work from here"
            )
        return change(seen.definition)

    return await _edit(database, job_id, changed)


async def edit_version(database: Database, job_id: UUID, version: int, job: Recurring) -> int:
    """Change a job that is of a version. Returns its new one. Raises NotFound, VersionChanged, TriggerError."""

    def changed(seen: Seen) -> Recurring:
        if seen.job["generation"] != version:
            raise VersionChanged(f"job {job_id} is of version {seen.job['generation']}, not {version}; look again")
        return job

    return await _edit(database, job_id, changed)


async def _edit(database: Database, job_id: UUID, changed: Callable[[Seen], Recurring]) -> int:
    floor: datetime | None = None
    for _ in range(_LOOKS_MAX):  # It may be edited, staged or claimed from between the look and the move.
        seen = await see(database, job_id)
        job = changed(seen)
        timing = await _timing(database, seen, job, floor)
        moments, skips = seen.staged(), None
        if timing.first_at is not None:
            moments, skips = [moment for moment in moments if moment >= seen.read_at], _skips(seen)
        answer = await store.edit(
            database, job_id, seen.generation, job, timing, seen.pending_at, moments, floor, skips, seen.read_at
        )
        if answer.answer == "edited":
            return seen.generation + 1
        if answer.answer == "over":
            raise NotFound(f"job {job_id} has ended; submit a new one")
        floor = answer.floor
    raise Unsettled(f"job {job_id}")


async def _timing(database: Database, seen: Seen, job: Recurring, floor: datetime | None) -> Timing:
    """Compile the new schedule. Its first fire comes after the edit and after all that cannot be taken back; none: as before."""
    names = calendars_in(job.schedule)
    calendars = read_calendars(await schedules.calendars(database, seen.job["tenant"], names) if names else {})
    timing = timing_of(_as_before(job.schedule, seen), job_id=str(seen.job_id), now=seen.read_at, calendars=calendars)
    if _is_unchanged(timing, job.schedule, seen):
        return msgspec.structs.replace(timing, first_at=None, anchor_at=seen.job["anchor_at"])
    if timing.overlap == AFTER_END:
        return timing
    if timing.every_seconds is not None and timing.anchor_at is None:
        anchor = seen.read_at.replace(microsecond=0) + timedelta(seconds=1)
        timing = msgspec.structs.replace(timing, anchor_at=anchor)
    schedule = schedule_of(timing.schedule, timing.every_seconds, timing.anchor_at, calendars)
    first_at, window = arm(schedule, max(floor or seen.read_at, seen.read_at)) or (timing.first_at, timing.window)
    return msgspec.structs.replace(timing, first_at=first_at, window=window)


def _as_before(shape: Mapping[str, Any], seen: Seen) -> Mapping[str, Any]:
    """Read a trigger that was asked for in the same words before as what it became then, not as what it would be now."""
    stored = {} if seen.job["schedule"] is None else msgspec.json.decode(seen.job["schedule"])
    if "asked" in stored and stored["asked"] == shape.get("trigger"):
        return {**shape, "asked": stored["asked"], "trigger": stored["trigger"]}
    return shape


def _is_unchanged(timing: Timing, shape: Mapping[str, Any], seen: Seen) -> bool:
    """Say whether the new timing names the moments that the old one does."""
    if is_on_event(shape):
        return bool(timing.cohort == seen.job["cohort"])
    was_delay = isinstance(seen.schedule.trigger, FixedDelay)
    same_anchor = shape["trigger"].get("anchor") is None or timing.anchor_at == seen.job["anchor_at"]
    if timing.overlap == AFTER_END:  # Its period may differ; the store moves what is pending by as much.
        return was_delay and same_anchor
    if timing.cohort is not None:
        return bool(timing.cohort == seen.job["cohort"])
    return bool(seen.job["every_seconds"] == timing.every_seconds) and same_anchor and not was_delay


def _skips(seen: Seen) -> str | None:
    """Record what the old timing has named and not fired, since nothing else will."""
    last = None if seen.schedule.trigger.is_estimate else seen.schedule.latest_at_or_before(seen.read_at)
    if last is None or last.scheduled_at < seen.pending_at:
        return None
    reason = "skipped_paused" if seen.is_paused else "skipped_edit"
    return msgspec.json.encode([stretch(seen.schedule, seen.pending_at, last.scheduled_at, reason)]).decode()
