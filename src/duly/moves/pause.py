"""Pause and resume: a schedule stops firing and keeps its place; what it would have fired meanwhile is on record."""

from __future__ import annotations

from uuid import UUID

import msgspec

from duly.domain.declaration import REMOVED
from duly.domain.errors import NotFound
from duly.domain.triggers.elapsed import FixedDelay
from duly.domain.triggers.planning import arm, skipped_between
from duly.moves.schedule import Seen, see
from duly.store import schedules
from duly.store.database import Database

_LOOKS_MAX = 100


async def pause(database: Database, job_id: UUID, reason: str = "paused on request") -> str:
    """Pause a schedule: paused, or already. What is staged and in nobody's hands is taken back. Raises NotFound."""
    seen = await see(database, job_id)
    answer = await schedules.pause(database, job_id, reason, seen.staged_ids())
    if answer == "already" and seen.job["pause_reason"] == REMOVED:
        await schedules.give_reason(database, job_id, REMOVED, reason)  # So that the code's return does not resume it.
    return _found(job_id, answer)


async def resume(database: Database, job_id: UUID, *, catch_up: bool = False) -> str:
    """Resume a schedule: active, or already. What it missed is skipped, or with `catch_up` a misfire. Raises NotFound."""
    for _ in range(_LOOKS_MAX):  # It may be edited between the look and the move.
        answer = await _resume(database, await see(database, job_id), catch_up=catch_up)
        if answer != "again":
            return _found(job_id, answer)
    raise TimeoutError(f"job {job_id} kept changing; try again")


async def _resume(database: Database, seen: Seen, *, catch_up: bool) -> str:
    schedule, pending, now = seen.schedule, seen.pending_at, seen.read_at
    if catch_up or pending > now:
        window = schedule.jitter_window(pending)
        return await schedules.resume(database, seen.job_id, pending, None, window, None)
    if isinstance(schedule.trigger, FixedDelay):
        return await schedules.resume(database, seen.job_id, pending, now, 0, None)
    skip = skipped_between(schedule, seen.before(pending), now, "skipped_paused")
    next_at, window = arm(schedule, now) or (None, 0)
    skips = None if skip is None else msgspec.json.encode([skip]).decode()
    if next_at is None:  # Nothing is left: what is pending is a misfire, and ends it.
        return await schedules.resume(database, seen.job_id, pending, None, 0, None)
    return await schedules.resume(database, seen.job_id, pending, next_at, window, skips)


def _found(job_id: UUID, answer: str) -> str:
    if answer == "over":
        raise NotFound(f"job {job_id} has ended; there is nothing to pause or to resume")
    return answer
