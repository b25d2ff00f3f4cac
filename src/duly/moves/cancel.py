"""Cancel: one verb for what is to come, one for what is running. The answer tells the truth."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from enum import StrEnum
from uuid import UUID

import msgspec

from duly.domain.errors import DeclaredInCode, NotFound, Unsettled
from duly.domain.jobs.declaration import OWNER
from duly.domain.tenancy.audit import Action, Subject
from duly.moves.admin.audit import actor_of, audited, note, note_runs
from duly.moves.recall import recalled
from duly.moves.schedules.schedule import see
from duly.store.boxes import awaited, leased, runs
from duly.store.connection.database import Database
from duly.store.tables import declared, jobs

_LOOKS_MAX = 100
_BATCH = 5_000
_LEAVING_MAX = 100_000  # few, unless they stand in a line
_LOOK_PAUSE_SECONDS = 0.02
SUBTASKS_MAX = 10_000  # taken along by one cancel
_SUBTASKS = 500
_FIRST = UUID(int=0)
_WITH_PARENT = "cancelled with its parent"
# How long a run that its successor replaces may take to stop. A process of its own is killed after 5 s, and what it came to is
# on record by then; so this is for plain functions, which nobody can stop.
STOP_TIMEOUT = timedelta(seconds=10)


class CancelAnswer(StrEnum):
    """What became of the request."""

    CANCELLED = "cancelled"  # it was waiting, for its start or for its receiver, and does so no more
    REQUESTED = "requested"  # it is in a worker's hands, who has been asked; what it came to will be on the run
    TOO_LATE = "too_late"  # it had ended already


async def cancel_run(database: Database, run_id: UUID, reason: str = "cancelled") -> CancelAnswer:
    """Cancel one run, wherever it stands. Raises NotFound, Unsettled."""
    async with recalled(database, run_ids=[run_id]):  # Before the transaction, which would hold a connection meanwhile.
        return await _cancel_one(database, run_id, reason)


@audited
async def _cancel_one(database: Database, run_id: UUID, reason: str) -> CancelAnswer:
    answer = await _cancel_run(database, run_id, reason)
    await note_runs(database, Action.RUN_CANCELLED, [run_id], int(answer is not CancelAnswer.TOO_LATE), answer=answer)
    return answer


class CancelledTree(msgspec.Struct, frozen=True):
    """What became of a run, and how many subtasks were cancelled along with it."""

    answer: CancelAnswer
    subtasks: int


async def cancel_tree(database: Database, run_id: UUID) -> CancelledTree:
    """Cancel a run and its subtasks, and theirs. Raises NotFound, Unsettled."""
    async with recalled(database, run_ids=[run_id]):
        return await _cancel_tree(database, run_id)


@audited
async def _cancel_tree(database: Database, run_id: UUID) -> CancelledTree:
    answer = await _cancel_run(database, run_id, "cancelled")
    subtasks = await _cancel_subtasks(database, run_id)
    count = int(answer is not CancelAnswer.TOO_LATE) + subtasks
    await note_runs(database, Action.RUN_CANCELLED, [run_id], count, answer=answer, subtasks=subtasks)
    return CancelledTree(answer, subtasks)


async def _cancel_run(database: Database, run_id: UUID, reason: str, *, started: bool = True) -> CancelAnswer:
    """Cancel one run, or leave it alone if it has `started` and that is not meant. Raises NotFound, Unsettled."""
    for _ in range(_LOOKS_MAX):  # A row may be on the move between two looks; it is never nowhere for long.
        if await runs.cancel(database, [run_id], reason):
            return CancelAnswer.CANCELLED
        if started and await awaited.cancel(database, [run_id], reason):
            return CancelAnswer.CANCELLED
        held = [run_id] if started else await jobs.held_ahead(database, run_id)
        if await runs.signal(database, held, "cancel"):
            return CancelAnswer.REQUESTED
        found = await runs.find(database, run_id)
        if found is None:
            raise NotFound(f"no run {run_id}; `duly runs` lists them")
        if found["state"] in runs.FINAL or (found["state"] == "running" and not started):
            return CancelAnswer.TOO_LATE
        await database.clock.sleep(_LOOK_PAUSE_SECONDS)
    raise Unsettled(f"run {run_id}")


async def cancel_job(database: Database, job_id: UUID, reason: str = "cancelled") -> CancelAnswer:
    """Cancel a schedule and its runs that have not started, or a one-shot. Raises NotFound, DeclaredInCode, Unsettled."""
    async with recalled(database, run_ids=[job_id, *await jobs.leased_runs(database, job_id)]):
        return await _cancel_job_noted(database, job_id, reason)


@audited
async def _cancel_job_noted(database: Database, job_id: UUID, reason: str) -> CancelAnswer:
    answer = await _cancel_job(database, job_id, reason)
    await _note_job(database, job_id, Ended(answer, 0))
    return answer


async def _note_job(database: Database, job_id: UUID, ended: Ended) -> None:
    if actor_of(database) is None or (ended.answer is CancelAnswer.TOO_LATE and not ended.stopping):
        return
    found = await jobs.find(database, job_id) or await runs.find(database, job_id)
    assert found is not None
    subject = Subject("job", str(job_id), found.get("name"))
    detail = {"answer": ended.answer, "stopping": ended.stopping or None}
    await note(database, found["tenant"], Action.JOB_CANCELLED, subject, **detail)


async def _cancel_job(database: Database, job_id: UUID, reason: str) -> CancelAnswer:
    found = await jobs.find(database, job_id)
    if found is None:
        return await _cancel_run(database, job_id, reason)
    if found["owner"] == OWNER and found["name"] in await declared.live(database, found["tenant"]):
        raise DeclaredInCode(
            f"job {found['name']!r} is declared in {found['source']}, which would create it again;"
            " remove the schedule from its decorator, or pause the job"
        )
    for _ in range(_LOOKS_MAX):  # While the schedule is being staged its timer is not there: look again.
        if await _cancel_schedule(database, job_id):
            await _cancel_waiting(database, job_id, reason)
            await runs.signal(database, await jobs.held_ahead(database, job_id), "cancel")
            return CancelAnswer.CANCELLED
        job = await jobs.find(database, job_id)
        if job is None or job["state"] not in ("active", "paused"):
            return await _cancel_left(database, job_id, reason)
        await database.clock.sleep(_LOOK_PAUSE_SECONDS)
    raise Unsettled(f"job {job_id}")


async def _cancel_schedule(database: Database, job_id: UUID) -> bool:
    """End a schedule that is not over, and record what it has named and not fired by now. False: look again."""
    try:
        seen = await see(database, job_id)
    except NotFound:
        return False
    return await jobs.cancel_schedule(database, job_id, seen.pending_at, seen.unfired("skipped_on_request"))


async def _cancel_waiting(database: Database, job_id: UUID, reason: str) -> int:
    """Cancel the runs of a schedule that wait. Says how many.

    Batch by batch: a long weekend may have left any number. All of it may be one transaction, in which a gate is locked last:
    whoever waits for it may hold one of these runs. So those that leave one come behind all others, and together.
    """
    outside = await _cancel_found(database, lambda: jobs.waiting_outside(database, job_id, _BATCH), reason)
    return outside + await _cancel_found(database, lambda: jobs.waiting_runs(database, job_id, _LEAVING_MAX), reason)


async def _cancel_found(database: Database, find: Callable[[], Awaitable[list[UUID]]], reason: str) -> int:
    cancelled = 0
    while waiting := await find():
        taken = await runs.cancel(database, waiting, reason)
        if not taken:  # Others are moving them.
            break
        cancelled += len(taken)
    return cancelled


async def _cancel_left(database: Database, job_id: UUID, reason: str) -> CancelAnswer:
    """Cancel what a job that fires no more has left: its last occurrence may wait for a worker, or for another attempt."""
    if await _cancel_waiting(database, job_id, reason):
        return CancelAnswer.CANCELLED
    if await runs.signal(database, await jobs.held_ahead(database, job_id), "cancel"):
        return CancelAnswer.REQUESTED
    return CancelAnswer.TOO_LATE


@audited
async def cancel_subtasks(database: Database, run_id: UUID) -> int:
    """Cancel the subtasks of a run, and theirs: those that wait are taken out, and of those that run the worker is asked.

    Returns how many these were.
    """
    taken = await _cancel_subtasks(database, run_id)
    await note_runs(database, Action.RUN_CANCELLED, [run_id], taken, subtasks=taken)
    return taken


async def _cancel_subtasks(database: Database, run_id: UUID) -> int:
    parents, taken = [run_id], 0
    while parents and taken < SUBTASKS_MAX:
        parent, after = parents.pop(), _FIRST
        while live := await runs.live_subtasks(database, parent, after, _SUBTASKS):
            taken += await _cancel_live(database, live, _WITH_PARENT)
            parents += live  # Each may have subtasks of its own: one that runs, or waits for another attempt.
            after = live[-1]
    return taken


@audited
async def cancel_live(database: Database, run_ids: Sequence[UUID], reason: str) -> int:
    """Cancel runs that wait, for their start or for their receiver, and ask the workers of the others to stop them.

    Returns how many these were; those that have ended, or are on the move at this moment, are left as they are.
    """
    count = await _cancel_live(database, run_ids, reason)
    await note_runs(database, Action.RUN_CANCELLED, run_ids, count)
    return count


async def _cancel_live(database: Database, run_ids: Sequence[UUID], reason: str) -> int:
    cancelled = await runs.cancel(database, run_ids, reason)
    held = sorted(set(run_ids) - set(cancelled))
    given_up = await awaited.cancel(database, held, reason) if held else []
    running = sorted(set(held) - set(given_up))
    asked = await runs.signal(database, running, "cancel") if running else []
    return len(cancelled) + len(given_up) + len(asked)


class Ended(msgspec.Struct, frozen=True):
    """The end of a job: of its future runs, how many started runs were asked to end, and the runs whose worker does not answer.

    Such a run has started or may still start.
    """

    answer: CancelAnswer
    stopping: int
    may_start: tuple[UUID, ...] = ()


async def end_job(database: Database, job_id: UUID, *, stop: bool) -> Ended:
    """End a schedule or a one-shot; what has started goes on, or with `stop` is asked to end.

    Raises NotFound, DeclaredInCode, Unsettled.
    """
    async with recalled(database, run_ids=[job_id, *await jobs.leased_runs(database, job_id)]) as silent:
        ended = await _end_job_noted(database, job_id, stop=stop)
        return msgspec.structs.replace(ended, may_start=() if stop else tuple(silent))


@audited
async def _end_job_noted(database: Database, job_id: UUID, *, stop: bool) -> Ended:
    ended = await _end_job(database, job_id, stop=stop)
    await _note_job(database, job_id, ended)
    return ended


async def _end_job(database: Database, job_id: UUID, *, stop: bool) -> Ended:
    if await jobs.find(database, job_id) is None:
        answer = await _cancel_run(database, job_id, "cancelled", started=stop)
        return Ended(answer, int(stop and answer is CancelAnswer.REQUESTED))
    answer = await _cancel_job(database, job_id, "cancelled")
    started = await runs.signal(database, await jobs.leased_runs(database, job_id), "cancel") if stop else []
    return Ended(answer, len(started))


async def carry_out(database: Database) -> int:
    """Carry out cancels whose run left its holder's hands before the holder heard of them. Returns how many there were."""
    return len(await runs.carry_out(database))


async def void_overstayed(database: Database) -> list[UUID]:
    """Let the next run of a job take the place of one that was asked to stop and did not in time; its outcome is fenced."""
    return await leased.void_overstayed(database, STOP_TIMEOUT)
