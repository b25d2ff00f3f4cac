"""Cancel: one verb for waiting runs, one for active ones. The answer says which it was."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from enum import StrEnum
from uuid import UUID

import msgspec

from duly.domain.errors import DeclaredInCode, NotFound, Unsettled
from duly.domain.jobs.declaration import OWNER
from duly.domain.runs.run import FINAL_STATES
from duly.domain.tenancy.audit import Action, Subject
from duly.moves.admin.audit import actor_of, audited, record, record_runs
from duly.moves.recall import recalled
from duly.moves.schedules.schedule import see
from duly.store.boxes import awaited, leased, runs
from duly.store.connection.database import Database
from duly.store.tables import declared, jobs

_LOOKS_MAX = 100
_BATCH = 5_000
_LEAVING_MAX = 100_000  # few, unless they wait in order
_LOOK_PAUSE_SECONDS = 0.02
SUBTASKS_MAX = 10_000  # cancelled together with one run
_SUBTASKS = 500
_FIRST = UUID(int=0)
_WITH_PARENT = "cancelled with its parent"
# How long a run that its successor replaces may take to stop. An isolated run is killed after 5 s and its outcome
# recorded by then; so this is for plain functions, which cannot be stopped.
STOP_TIMEOUT = timedelta(seconds=10)


class CancelAnswer(StrEnum):
    """The result of a cancel."""

    CANCELLED = "cancelled"  # it was waiting, for its start or for its receiver
    REQUESTED = "requested"  # a worker holds it and has been asked to stop it; the run will show its outcome
    TOO_LATE = "too_late"  # it had ended already


async def cancel_run(database: Database, run_id: UUID, reason: str = "cancelled") -> CancelAnswer:
    """Cancel one run, in any box. Raises NotFound, Unsettled."""
    async with recalled(database, run_ids=[run_id]):  # before the transaction, which would hold a connection meanwhile
        return await _cancel_one(database, run_id, reason)


@audited
async def _cancel_one(database: Database, run_id: UUID, reason: str) -> CancelAnswer:
    answer = await _cancel_run(database, run_id, reason)
    await record_runs(database, Action.RUN_CANCELLED, [run_id], int(answer is not CancelAnswer.TOO_LATE), answer=answer)
    return answer


class CancelledTree(msgspec.Struct, frozen=True):
    """The result of cancelling a run, and how many subtasks were cancelled with it."""

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
    await record_runs(database, Action.RUN_CANCELLED, [run_id], count, answer=answer, subtasks=subtasks)
    return CancelledTree(answer, subtasks)


async def _cancel_run(database: Database, run_id: UUID, reason: str, *, started: bool = True) -> CancelAnswer:
    """Cancel one run, unless it has `started` and only waiting ones are meant. Raises NotFound, Unsettled."""
    for _ in range(_LOOKS_MAX):  # a row may move between two looks; it is never nowhere for long
        if await runs.cancel(database, [run_id], reason):
            return CancelAnswer.CANCELLED
        if started and await awaited.cancel(database, [run_id], reason):
            return CancelAnswer.CANCELLED
        held = [run_id] if started else await jobs.leased_ahead(database, run_id)
        if await runs.signal(database, held, "cancel"):
            return CancelAnswer.REQUESTED
        found = await runs.find(database, run_id)
        if found is None:
            raise NotFound(f"no run {run_id}; `duly runs` lists them")
        if found["state"] in FINAL_STATES or (found["state"] == "running" and not started):
            return CancelAnswer.TOO_LATE
        await database.clock.sleep(_LOOK_PAUSE_SECONDS)
    raise Unsettled(f"run {run_id}")


async def cancel_job(database: Database, job_id: UUID, reason: str = "cancelled") -> CancelAnswer:
    """Cancel a schedule and its runs that have not started, or a one-shot. Raises NotFound, DeclaredInCode, Unsettled."""
    async with recalled(database, run_ids=[job_id, *await jobs.leased_runs(database, job_id)]):
        return await _cancel_job_recorded(database, job_id, reason)


@audited
async def _cancel_job_recorded(database: Database, job_id: UUID, reason: str) -> CancelAnswer:
    answer = await _cancel_job(database, job_id, reason)
    await _record_job(database, job_id, Ended(answer, 0))
    return answer


async def _record_job(database: Database, job_id: UUID, ended: Ended) -> None:
    if actor_of(database) is None or (ended.answer is CancelAnswer.TOO_LATE and not ended.stopping):
        return
    found = await jobs.find(database, job_id) or await runs.find(database, job_id)
    assert found is not None
    subject = Subject("job", str(job_id), found.get("name"))
    detail = {"answer": ended.answer, "stopping": ended.stopping or None}
    await record(database, found["tenant"], Action.JOB_CANCELLED, subject, **detail)


async def _cancel_job(database: Database, job_id: UUID, reason: str) -> CancelAnswer:
    found = await jobs.find(database, job_id)
    if found is None:
        return await _cancel_run(database, job_id, reason)
    if found["owner"] == OWNER and found["name"] in await declared.live(database, found["tenant"]):
        raise DeclaredInCode(
            f"job {found['name']!r} is declared in {found['source']}, which would create it again;"
            " remove the schedule from its decorator, or pause the job"
        )
    for _ in range(_LOOKS_MAX):  # while the schedule is being staged its timer is not there: look again
        if await _cancel_schedule(database, job_id):
            await _cancel_waiting(database, job_id, reason)
            await runs.signal(database, await jobs.leased_ahead(database, job_id), "cancel")
            return CancelAnswer.CANCELLED
        job = await jobs.find(database, job_id)
        if job is None or job["state"] not in ("active", "paused"):
            return await _cancel_left(database, job_id, reason)
        await database.clock.sleep(_LOOK_PAUSE_SECONDS)
    raise Unsettled(f"job {job_id}")


async def _cancel_schedule(database: Database, job_id: UUID) -> bool:
    """End an active schedule, and record its occurrences that have not fired by now. False: look again."""
    try:
        seen = await see(database, job_id)
    except NotFound:
        return False
    return await jobs.cancel_schedule(database, job_id, seen.pending_at, seen.unfired("skipped_on_request"))


async def _cancel_waiting(database: Database, job_id: UUID, reason: str) -> int:
    """Cancel the waiting runs of a schedule. Returns how many.

    Batch by batch: a long weekend may have left any number. All of it may be one transaction, in which a concurrency
    key is locked last: one of its waiters may hold a lock on one of these runs. So runs that free a slot come after all
    others, and together.
    """
    outside = await _cancel_found(database, lambda: jobs.waiting_outside(database, job_id, _BATCH), reason)
    return outside + await _cancel_found(database, lambda: jobs.waiting_runs(database, job_id, _LEAVING_MAX), reason)


async def _cancel_found(database: Database, find: Callable[[], Awaitable[list[UUID]]], reason: str) -> int:
    cancelled = 0
    while waiting := await find():
        taken = await runs.cancel(database, waiting, reason)
        if not taken:  # other processes are moving them
            break
        cancelled += len(taken)
    return cancelled


async def _cancel_left(database: Database, job_id: UUID, reason: str) -> CancelAnswer:
    """Cancel the remaining runs of an ended job: its last occurrence may wait for a worker, or for another attempt."""
    if await _cancel_waiting(database, job_id, reason):
        return CancelAnswer.CANCELLED
    if await runs.signal(database, await jobs.leased_ahead(database, job_id), "cancel"):
        return CancelAnswer.REQUESTED
    return CancelAnswer.TOO_LATE


@audited
async def cancel_subtasks(database: Database, run_id: UUID) -> int:
    """Cancel the subtasks of a run, and theirs: waiting ones are removed, and the workers of active ones are asked to
    stop.

    Returns how many there were.
    """
    taken = await _cancel_subtasks(database, run_id)
    await record_runs(database, Action.RUN_CANCELLED, [run_id], taken, subtasks=taken)
    return taken


async def _cancel_subtasks(database: Database, run_id: UUID) -> int:
    parents, taken = [run_id], 0
    while parents and taken < SUBTASKS_MAX:
        parent, after = parents.pop(), _FIRST
        while live := await runs.live_subtasks(database, parent, after, _SUBTASKS):
            taken += await _cancel_live(database, live, _WITH_PARENT)
            parents += live  # each may have subtasks of its own: one that runs, or waits for another attempt
            after = live[-1]
    return taken


@audited
async def cancel_live(database: Database, run_ids: Sequence[UUID], reason: str) -> int:
    """Cancel runs that wait, for their start or for their receiver, and ask the workers of the others to stop them.

    Returns how many there were; runs that have ended, or are just moving, are left as they are.
    """
    count = await _cancel_live(database, run_ids, reason)
    await record_runs(database, Action.RUN_CANCELLED, run_ids, count)
    return count


async def _cancel_live(database: Database, run_ids: Sequence[UUID], reason: str) -> int:
    cancelled = await runs.cancel(database, run_ids, reason)
    held = sorted(set(run_ids) - set(cancelled))
    given_up = await awaited.cancel(database, held, reason) if held else []
    running = sorted(set(held) - set(given_up))
    requested = await runs.signal(database, running, "cancel") if running else []
    return len(cancelled) + len(given_up) + len(requested)


class Ended(msgspec.Struct, frozen=True):
    """The result of ending a job: of its future runs, how many started runs were asked to end, and the runs whose
    worker does not answer.

    Such a run has started or may still start.
    """

    answer: CancelAnswer
    stopping: int
    may_start: tuple[UUID, ...] = ()


async def end_job(database: Database, job_id: UUID, *, stop: bool) -> Ended:
    """End a schedule or a one-shot; started runs go on, or with `stop` are asked to end.

    Raises NotFound, DeclaredInCode, Unsettled.
    """
    async with recalled(database, run_ids=[job_id, *await jobs.leased_runs(database, job_id)]) as silent:
        ended = await _end_job_recorded(database, job_id, stop=stop)
        return msgspec.structs.replace(ended, may_start=() if stop else tuple(silent))


@audited
async def _end_job_recorded(database: Database, job_id: UUID, *, stop: bool) -> Ended:
    ended = await _end_job(database, job_id, stop=stop)
    await _record_job(database, job_id, ended)
    return ended


async def _end_job(database: Database, job_id: UUID, *, stop: bool) -> Ended:
    if await jobs.find(database, job_id) is None:
        answer = await _cancel_run(database, job_id, "cancelled", started=stop)
        return Ended(answer, int(stop and answer is CancelAnswer.REQUESTED))
    answer = await _cancel_job(database, job_id, "cancelled")
    started = await runs.signal(database, await jobs.leased_runs(database, job_id), "cancel") if stop else []
    return Ended(answer, len(started))


async def carry_out(database: Database) -> int:
    """Carry out cancels whose run left its holder before the holder saw the signal. Returns how many there were."""
    return len(await runs.carry_out(database))


async def void_overstayed(database: Database) -> list[UUID]:
    """Let the next run of a job take the slot of one that did not stop in time; that one's outcome is fenced."""
    return await leased.void_overstayed(database, STOP_TIMEOUT)
