"""Recall: take runs back from workers that hold them ahead of their moment, so that they can be changed.

A worker gives back what it has not started, and the run waits in `blocked`, where nothing claims it. The caller then
cancels it, or makes it a pending fire again; the rest becomes ready when the block ends, or by maintenance if the
caller dies. Signals go through the database outside of any open transaction: a worker would not see them before its
commit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

from duly.domain.errors import NotFound, Unsettled
from duly.store.boxes import runs
from duly.store.boxes.runs import Recalled
from duly.store.connection import hints
from duly.store.connection.database import Database

# Within a second: a worker that holds something looks for signals four times as often.
_LOOKS_MAX = 50
_LOOK_SECONDS = 0.02
_TRIES_MAX = 10
ABANDONED_AFTER = timedelta(seconds=3)
T = TypeVar("T")


class RunHeld(Exception):
    """A worker holds a coming run of the schedule, or it is on its way there or back; nothing was changed."""


async def taking_back(
    database: Database,
    job_id: UUID,
    change: Callable[[list[UUID] | None], Awaitable[T]],
    settle: Callable[[list[UUID]], Awaitable[T]] | None = None,
) -> T:
    """Change a schedule, and take back the runs it has staged that have not started, also from workers.

    The change receives the runs whose worker did not answer, or None before the workers are asked. It raises `RunHeld`
    while a coming run is out of reach; if its worker did not answer, `settle` makes the change without it, if it can. A
    schedule that fires no more is checked again when its last run is known to have started. Raises NotFound; and
    Unsettled where a worker that does not answer holds a run that was coming when it was asked, even if that is due by
    now.
    """
    try:
        return await change(None)
    except RunHeld:
        pass
    except NotFound:
        if not await runs.has_held(database, job_id):
            raise
    for _ in range(_TRIES_MAX):  # another run may be staged and claimed between the recall and the change
        requested_at = await database.outside.read_clock()
        async with recalled(database, job_ids=[job_id]) as silent:
            if silent:
                return await _without_answer(database, job_id, silent, requested_at, change, settle)
            with suppress(RunHeld):
                return await change(silent)
    raise Unsettled(f"job {job_id}")


async def _without_answer(
    database: Database,
    job_id: UUID,
    silent: list[UUID],
    requested_at: datetime,
    change: Callable[[list[UUID] | None], Awaitable[T]],
    settle: Callable[[list[UUID]], Awaitable[T]] | None,
) -> T:
    """Change a schedule though a worker did not answer, if none of its runs was still coming when it was asked."""
    unsettled = Unsettled(f"job {job_id}", f"a worker that does not respond holds run {silent[0]}")
    if settle is None and await runs.are_due_after(database, silent, requested_at):
        raise unsettled
    try:
        return await change(silent)
    except RunHeld:
        if settle is not None:
            return await settle(silent)
        raise unsettled from None
    except NotFound as error:
        raise unsettled from error


def unless_held(answer: str) -> str:
    """Return an answer of the store. Raises RunHeld if it is `held`."""
    if answer == "held":
        raise RunHeld
    return answer


async def unless_unstarted(database: Database, silent: list[UUID] | None, *, has_leased_run: bool) -> None:
    """Raise RunHeld while a worker that was not asked, or does not answer, holds a run that it may still start."""
    if (silent is None and has_leased_run) or (silent and await runs.may_start(database, silent)):
        raise RunHeld


@asynccontextmanager
async def recalled(
    database: Database, *, job_ids: Sequence[UUID] = (), run_ids: Sequence[UUID] = ()
) -> AsyncIterator[list[UUID]]:
    """Take coming runs of these schedules, and these runs, back from their workers for the block.

    Yields the runs whose worker did not answer: those may still start.
    """
    outside = database.outside
    requested = await runs.recall(outside, job_ids, run_ids)
    if not requested:
        yield []
        return
    try:
        await hints.send_pauses_changed(outside)
        yield await _until_answered(outside, requested)
    finally:
        await put_back(outside, requested)


async def put_back(database: Database, requested: Sequence[Recalled] | None = None) -> int:
    """Make untaken recalled runs ready: these, or all whose caller has gone away. Returns how many."""
    back = await runs.put_back(database, requested, ABANDONED_AFTER)
    if back:
        await hints.send(database, sorted({queue for _, queue in back}))
    return len(back)


async def _until_answered(database: Database, requested: Sequence[Recalled]) -> list[UUID]:
    silent = await runs.unanswered(database, requested)
    for _ in range(_LOOKS_MAX):
        if not silent:
            break
        await database.clock.sleep(_LOOK_SECONDS)
        silent = await runs.unanswered(database, requested)
    return silent
