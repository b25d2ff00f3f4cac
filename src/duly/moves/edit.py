"""Edit: change a recurring job. What no worker holds yet is made anew by the new definition; nothing fires twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.domain.declaration import OWNER
from duly.domain.errors import DeclaredInCode, NotFound, VersionChanged
from duly.domain.job import Recurring
from duly.domain.triggers.planning import arm
from duly.domain.triggers.timing import AFTER_END, Timing, calendars_in, read_calendars, schedule_of, timing_of
from duly.moves.schedule import Seen, see
from duly.store import jobs as store
from duly.store import schedules
from duly.store.database import Database

_LOOKS_MAX = 100
_FINEST = timedelta(microseconds=1)


async def edit(database: Database, job_id: UUID, job: Recurring) -> int:
    """Change a person's job to a definition, from now on. Returns its new version.

    Raises NotFound, TriggerError, and DeclaredInCode when a program declares the job.
    """

    def check(seen: Seen) -> None:
        if seen.job["owner"] == OWNER:
            raise DeclaredInCode(
                f"job {seen.job['name']!r} is declared in {seen.job['source']}; change it there, in its decorator,"
                " and start a worker of it. Pause, resume and trigger work from here"
            )

    return await _edit(database, job_id, job, check)


async def edit_version(database: Database, job_id: UUID, version: int, job: Recurring) -> int:
    """Change a job that is of a version. Returns its new one. Raises NotFound, VersionChanged, TriggerError."""

    def check(seen: Seen) -> None:
        if seen.job["generation"] != version:
            raise VersionChanged(f"job {job_id} is of version {seen.job['generation']}, not {version}; look again")

    return await _edit(database, job_id, job, check)


async def _edit(database: Database, job_id: UUID, job: Recurring, check: Callable[[Seen], None]) -> int:
    floor: datetime | None = None
    # Somebody else may edit it, or a worker claim more of it, between the look and the move.
    for _ in range(_LOOKS_MAX):
        seen = await see(database, job_id)
        check(seen)
        timing = await _timing(database, seen, job, floor or seen.read_at)
        answer = await store.edit(
            database, job_id, seen.job["generation"], job, timing, seen.staged_ids(), floor or seen.read_at
        )
        if answer.answer == "edited":
            return int(seen.job["generation"]) + 1
        if answer.answer == "over":
            raise NotFound(f"job {job_id} has ended; submit a new one")
        floor = answer.floor if answer.answer == "again" else floor
    raise TimeoutError(f"job {job_id} kept changing; try again")


async def _timing(database: Database, seen: Seen, job: Recurring, floor: datetime) -> Timing:
    """Compile the new schedule; its first fire comes after all that cannot be taken back."""
    names = calendars_in(job.schedule)
    calendars = read_calendars(await schedules.calendars(database, seen.job["tenant"], names) if names else {})
    timing = timing_of(job.schedule, job_id=str(seen.job_id), now=seen.read_at, calendars=calendars)
    if timing.overlap == AFTER_END:
        return timing
    if timing.every_seconds is not None and timing.anchor_at is None:
        kept = seen.job["anchor_at"] if seen.job["every_seconds"] == timing.every_seconds else None
        anchor = kept or seen.read_at.replace(microsecond=0) + timedelta(seconds=1)
        timing = msgspec.structs.replace(timing, anchor_at=anchor)
    schedule = schedule_of(timing.schedule, timing.every_seconds, timing.anchor_at, calendars)
    first_at, window = arm(schedule, max(floor, seen.read_at - _FINEST)) or (timing.first_at, timing.window)
    return msgspec.structs.replace(timing, first_at=first_at, window=window)
