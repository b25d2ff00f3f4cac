"""Pause, resume and skip-next of a schedule. A paused schedule keeps its position; fires it would have had are recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar
from uuid import UUID

import msgspec

from duly.domain.errors import InvalidOption, JobEnded, NotFound, Unsettled
from duly.domain.jobs.declaration import REMOVED
from duly.domain.tenancy.audit import Action, Subject
from duly.domain.triggers.elapsed import FixedDelay
from duly.domain.triggers.on_event import OnEvent
from duly.domain.triggers.schedule.planning import arm, latest_due, left_out_before, left_out_behind, stretch
from duly.moves.admin.audit import audited, record
from duly.moves.recall import taking_back, unless_held, unless_unstarted
from duly.moves.schedules.retry_on_conflict import retry_on_conflict
from duly.moves.schedules.schedule import Seen, see
from duly.store.connection.database import Database
from duly.store.tables import jobs, schedules

_NAMED_MAX = 100
T = TypeVar("T")


class Paused(msgspec.Struct, frozen=True):
    """The result of a pause: paused, or already; and the runs that may still start, a hundred at most.

    Such a run was due before the pause and has not started, or its worker does not answer.
    """

    answer: str
    may_start: tuple[UUID, ...] = ()


async def pause(database: Database, job_id: UUID, reason: str = "paused on request") -> str:
    """Pause a schedule: paused, or already. Runs that have not started are taken back. Raises NotFound, Unsettled."""
    return await _taking_back(
        database, job_id, lambda _silent, settles: _pause(database, job_id, reason, settles=settles)
    )


async def pause_naming(database: Database, job_id: UUID, reason: str) -> Paused:
    """Pause a schedule as `pause` does, and name the runs that may still start. Raises NotFound, Unsettled."""

    async def change(silent: list[UUID], settles: bool | None) -> Paused:
        answer = await _pause(database, job_id, reason, settles=settles)
        due = await jobs.due_unstarted(database, job_id, _NAMED_MAX)
        return Paused(answer, tuple(dict.fromkeys((*silent, *due)))[:_NAMED_MAX])

    return await _taking_back(database, job_id, change)


async def _taking_back(
    database: Database, job_id: UUID, change: Callable[[list[UUID], bool | None], Awaitable[T]]
) -> T:
    async def settle(silent: list[UUID]) -> T:
        try:
            return await change(silent, True)
        except NotFound as error:
            raise Unsettled(f"job {job_id}", "a worker that does not respond holds its last run") from error

    return await taking_back(
        database, job_id, lambda silent: change(silent or [], None if silent is None else False), settle
    )


@audited
async def _pause(database: Database, job_id: UUID, reason: str, *, settles: bool | None) -> str:
    async def attempt() -> str | None:  # it may be staged between the look and the move
        seen = await see(database, job_id)
        staged = seen.staged()
        answer = unless_held(
            await schedules.pause(database, job_id, seen.generation, reason, seen.pending_at, staged, settles=settles)
        )
        if answer == "already" and seen.pause_reason == REMOVED:
            # So that the code's return does not resume it.
            await schedules.give_reason(database, job_id, REMOVED, reason)
        await _record(database, seen, Action.JOB_PAUSED, answer, ("paused",), reason=reason)
        return _found(job_id, answer)

    return await retry_on_conflict(f"job {job_id}", attempt)


@audited
async def resume(database: Database, job_id: UUID, *, catch_up: bool = False) -> str:
    """Resume a schedule: active, already, or completed when nothing is left. Raises NotFound.

    Fires it missed are skipped, or with `catch_up` are misfires.
    """

    async def attempt() -> str | None:  # it may be edited between the look and the move
        seen = await see(database, job_id)
        answer = await _resume(database, seen, catch_up=catch_up)
        await _record(database, seen, Action.JOB_RESUMED, answer, ("active", "completed"), catch_up=catch_up or None)
        return _found(job_id, answer)

    return await retry_on_conflict(f"job {job_id}", attempt)


async def _resume(database: Database, seen: Seen, *, catch_up: bool) -> str:
    schedule, pending, now = seen.compiled, seen.pending_at, seen.read_at
    if isinstance(schedule.trigger, FixedDelay):
        return await schedules.resume(database, seen.job_id, seen.generation, pending, max(pending, now), 0, ())
    missed, skips = latest_due(schedule, str(seen.job_id), now), seen.left_out()
    next_at: datetime | None = pending
    window = schedule.jitter_window(pending)
    if missed is not None and missed >= pending and not catch_up:
        skips.append(stretch(schedule, pending, missed, "skipped_paused"))
        next_at, window = arm(schedule, missed) or (None, 0)
        skips += left_out_behind(schedule, now) if next_at is None else ()
    return await schedules.resume(database, seen.job_id, seen.generation, pending, next_at, window, skips)


async def skip_next(database: Database, job_id: UUID) -> datetime:
    """Skip the next occurrence that has not started. Returns its moment. Raises NotFound, InvalidOption, Unsettled."""
    return await taking_back(database, job_id, lambda silent: _skip_next(database, job_id, silent))


@audited
async def _skip_next(database: Database, job_id: UUID, silent: list[UUID] | None) -> datetime:

    async def attempt() -> datetime | None:  # it may be staged between the look and the move
        seen = await see(database, job_id)
        if seen.compiled.trigger.is_estimate:
            raise InvalidOption(f"job {job_id} counts from the end of its last run; pause it instead")
        if isinstance(seen.compiled.trigger, OnEvent):
            raise InvalidOption(f"job {job_id} waits for events and has no next occurrence; pause it instead")
        next_at, window = arm(seen.compiled, seen.pending_at) or (None, 0)
        skips = left_out_before(seen.compiled, seen.pending_at, seen.accountable_from, is_last=next_at is None)
        await unless_unstarted(database, silent, has_leased_run=seen.has_leased_run)
        answer, moment = await schedules.skip_next(
            database, job_id, seen.generation, seen.pending_at, next_at, window, seen.staged(), skips
        )
        if unless_held(answer) == "over":
            raise JobEnded(f"job {job_id} has ended and will not fire again")
        if moment is not None:
            subject = Subject("job", str(job_id), seen.name)
            await record(database, seen.tenant, Action.JOB_SKIPPED_NEXT, subject, scheduled_at=moment)
        return moment

    return await retry_on_conflict(f"job {job_id}", attempt)


async def _record(
    database: Database, seen: Seen, action: Action, answer: str, changed: tuple[str, ...], **detail: object
) -> None:
    subject = Subject("job", str(seen.job_id), seen.name)
    await record(database, seen.tenant, action, subject, int(answer in changed), **detail)


def _found(job_id: UUID, answer: str) -> str | None:
    if answer == "over":
        raise JobEnded(f"job {job_id} has ended and cannot be paused or resumed")
    return None if answer == "again" else answer
