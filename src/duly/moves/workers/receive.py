"""Receive: settle the outcomes that receivers report, and the runs whose receiver missed its deadline.

It is the ordinary settle, by run and fence, so the effects of an outcome are the same. The token names one attempt.
While that is active the report counts, whichever holds the run: a receiver may be faster than its own response to the
webhook. So does a report after the deadline, until the attempt has timed out: the work is done, and no other attempt
has begun. After the end, the record says so, and the same outcome reported again gets the first answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.clock import Rng
from duly.domain.errors import AttemptOver, NotFound, Unsettled
from duly.domain.runs.outcome import Failed, Outcome, Succeeded, TimedOut
from duly.domain.runs.progress import Progress
from duly.moves.redact import redactor_for
from duly.moves.settle import Settled, settle_for
from duly.store.boxes import awaited, runs
from duly.store.boxes.awaited import RECEIVER, Over, UnderWay
from duly.store.boxes.leased import Handle
from duly.store.connection import hints
from duly.store.connection.database import Database

EXTENSION_MAX = timedelta(days=30)
BATCH_MAX = 500
_LOOKS_MAX = 100
_LOOK_PAUSE_SECONDS = 0.02


class Received(msgspec.Struct, frozen=True):
    """The state of the run after the outcome, and the queue in which something may be ready now."""

    run_id: UUID
    attempt: int
    state: str
    queue: str | None


async def receive(database: Database, handle: Handle, outcome: Succeeded | Failed, rng: Rng) -> Received:
    """Settle an attempt with the outcome that its receiver reports. Raises NotFound, AttemptOver, Unsettled."""
    for _ in range(_LOOKS_MAX):  # between two looks its lease may pass from its worker to the receiver
        found = await awaited.find(database, handle)
        if found is None:
            return _answered(handle, outcome, await awaited.ended(database, handle), None)
        if await _settle(database, found.worker_id, [(found, outcome)], rng):
            return _answered(handle, outcome, await awaited.ended(database, handle), found.run.queue)
        await database.clock.sleep(_LOOK_PAUSE_SECONDS)
    raise Unsettled(f"run {handle[0]}")


async def extend(database: Database, handle: Handle, span: timedelta) -> datetime:
    """Extend a receiver's deadline from now. Raises NotFound, AttemptOver, Unsettled."""
    if deadline_at := await awaited.extend(database, handle, span):
        return deadline_at
    over = await awaited.ended(database, handle)
    if over is not None:
        raise _over(handle, over)
    under_way = await awaited.find(database, handle)
    if under_way is None:
        raise _not_found()
    deadline_at = under_way.deadline_at
    if deadline_at is not None and deadline_at <= await database.read_clock():
        deadline = f"{deadline_at:%Y-%m-%dT%H:%M:%SZ}"
        raise AttemptOver(
            f"attempt {under_way.run.attempt} of run {handle[0]} is over: its deadline, {deadline}, has passed"
        )
    raise Unsettled(f"run {handle[0]}: its webhook has no response yet; answer 202 first, then try again")


async def report(database: Database, handle: Handle, progress: Progress) -> None:
    """Save a receiver's progress, while its attempt is active. Raises NotFound, AttemptOver, Unsettled."""
    for _ in range(_LOOKS_MAX):  # between two looks its lease may pass from its worker to the receiver
        found = await awaited.find(database, handle)
        if found is None:
            over = await awaited.ended(database, handle)
            raise _not_found() if over is None else _over(handle, over)
        if progress.note is not None and (redactor := await redactor_for(database, handle[0])) is not None:
            progress = msgspec.structs.replace(progress, note=redactor.text(progress.note))
        if await runs.save_progress(database, *handle, found.worker_id, progress):
            return
        await database.clock.sleep(_LOOK_PAUSE_SECONDS)
    raise Unsettled(f"run {handle[0]}")


async def time_out(database: Database, rng: Rng) -> int:
    """Settle one batch of runs whose receiver missed its deadline. Returns how many there were."""
    overdue = await awaited.overdue(database, BATCH_MAX)
    settled = (
        await _settle(database, RECEIVER, [(item, _timed_out(item)) for item in overdue], rng) if overdue else set()
    )
    await awaited.forget(database, BATCH_MAX)
    if settled:
        await hints.send(database, sorted({item.run.queue for item in overdue}))
    return len(settled)


async def _settle(database: Database, holder: UUID, ended: Sequence[tuple[UnderWay, Outcome]], rng: Rng) -> set[Handle]:
    there = await settle_for(
        database, holder, [Settled(item.run, item.started_at, None, outcome) for item, outcome in ended], rng
    )
    for handle in there:  # a crash here leaves rows that mean nothing and are deleted after their deadline
        await awaited.close(database, handle)
    return there


def _answered(handle: Handle, outcome: Succeeded | Failed, over: Over | None, queue: str | None) -> Received:
    if over is None:
        raise _not_found()
    if over.outcome != ("succeeded" if isinstance(outcome, Succeeded) else "failed"):
        raise _over(handle, over)
    return Received(handle[0], over.attempt, over.became, queue)


def _timed_out(item: UnderWay) -> TimedOut:
    assert item.deadline_at is not None
    return TimedOut(max(0.0, (item.deadline_at - item.started_at).total_seconds()))


def _over(handle: Handle, over: Over) -> AttemptOver:
    return AttemptOver(
        f"attempt {over.attempt} of run {handle[0]} is over: it {over.outcome.replace('_', ' ')},"
        f" and the run became {over.became}"
    )


def _not_found() -> NotFound:
    return NotFound("no such callback; a token is valid for one attempt, while it runs and while its history is kept")
