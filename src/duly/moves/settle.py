"""Settle: record the outcomes of attempts and move their runs on.

A lease is ended by row (tid) and fence, then, where that misses, by id and fence. A run still missing was either settled by
us before (the commit's answer was lost) or its lease was lost: then the outcome is refused and recorded as fenced. One
bad row never blocks a batch: on a data error the batch is halved down to the row, which is settled without its details.
A row that is refused even so is reported when all others are settled.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias, TypeVar, assert_never
from uuid import UUID

import msgspec

from duly.clock import Rng, moment_of
from duly.domain.counting import some
from duly.domain.jobs.job import DELAY_MAX
from duly.domain.runs.lifecycle import Bury, Finish, Transition, WaitFor, decide
from duly.domain.runs.outcome import Cancelled, Expired, Failed, Lost, Outcome, Snoozed, Spent, Succeeded, TimedOut
from duly.domain.runs.payload import storable
from duly.domain.runs.run import HORIZON, Run
from duly.moves.redact import redacted_ends
from duly.store.boxes import leased
from duly.store.boxes.leased import Finished, Handle, Moved
from duly.store.connection.database import Database
from duly.store.connection.refusals import BAD_ROW

_REASON_CHARACTERS_MAX = 2_000
_Item = TypeVar("_Item", Finished, Moved)
_Sent: TypeAlias = tuple[Collection[Handle], dict[Handle, Exception]]  # those that were there, and those refused
_Some = TypeVar("_Some")
_Send: TypeAlias = Callable[[Sequence[_Some]], Awaitable[Collection[Handle]]]


class Unstorable(Exception):
    """The runs of a batch that the store refuses even without details; all others are settled, or were `fenced`."""

    def __init__(self, runs: Sequence[Run], fenced: Sequence[Run], cause: Exception) -> None:
        super().__init__(
            f"the database refuses the outcome of {some(len(runs), 'run')}, the first is {runs[0].run_id}: {cause!r}"
        )
        self.runs = runs
        self.fenced = fenced


class Settled(msgspec.Struct, frozen=True, gc=False):
    """An ended attempt. `left_behind`: it saved something that must go when the run is final.

    `end_of` turns a plain success into a `Finished`, which costs less.
    """

    run: Run
    started_at: datetime | None
    finished_at: datetime | None
    outcome: Outcome
    left_behind: bool = False


End: TypeAlias = Settled | Finished


def end_of(run: Run, started: float, finished: float, outcome: Outcome, *, left_behind: bool) -> End:
    """Return the end of an attempt that began and ended at these seconds since 1970."""
    if type(outcome) is Succeeded and not left_behind and _is_plain(run, outcome):
        return Finished(run, started, finished, outcome.result)
    return Settled(run, moment_of(started), moment_of(finished), outcome, left_behind)


async def settle(database: Database, worker_id: UUID, ended: Sequence[End], rng: Rng) -> list[Run]:
    """Record `ended` and move each run on. Returns the runs refused because their lease was lost. Raises Unstorable."""
    now = await _now(database)
    plain: list[Finished] = []
    others: list[Moved] = []
    for item in ended:
        if isinstance(item, Finished):
            plain.append(item)
        elif (found := _finished(item)) is not None:
            plain.append(found)
        else:
            others.append(_moved(item, rng, now))
    plain, others = await redacted_ends(database, plain), await redacted_ends(database, others)
    missed = await _finish(database, worker_id, plain)
    return await _settle_moved(database, worker_id, [*others, *(_moved(_settled(item), rng, now) for item in missed)])


async def settle_by_key(database: Database, worker_id: UUID, settled: Sequence[Settled], rng: Rng) -> set[Handle]:
    """Record `settled` inside a transaction and move each run on. Returns those that were there."""

    async def send(batch: Sequence[Moved]) -> set[Handle]:
        async with database.transaction():  # a bad row undoes only its own batch
            return await leased.settle(database, worker_id, batch, HORIZON)

    now = await _now(database)
    return await _apply(await redacted_ends(database, [_moved(item, rng, now) for item in settled]), send)


async def settle_for(database: Database, holder: UUID, settled: Sequence[Settled], rng: Rng) -> set[Handle]:
    """Settle for the holder of the runs. Returns those that were there; the others have been moved on."""
    now = await _now(database)
    moved = await redacted_ends(database, [_moved(item, rng, now) for item in settled])
    return await _apply(moved, lambda batch: leased.settle(database, holder, batch, HORIZON))


async def lose(database: Database, worker_id: UUID, lost: Sequence[tuple[Run, Lost]], rng: Rng) -> _Sent:
    """Settle for a lost worker. Returns those that were there, and those that the store refuses."""
    now = await _now(database)
    moved = [_moved(Settled(run, None, None, outcome), rng, now) for run, outcome in lost]
    return await _sent(moved, lambda batch: leased.settle(database, worker_id, batch, HORIZON))


async def give_back(database: Database, worker_id: UUID, runs: Sequence[Run]) -> _Sent:
    """Hand back for a lost worker. Returns those that were there, and those that the store refuses."""

    async def alone(run: Run, error: Exception) -> _Sent:
        return set(), {(run.run_id, run.fence): error}

    return await _halved(runs, lambda batch: leased.hand_back(database, worker_id, batch), alone)


async def hand_back(database: Database, worker_id: UUID, runs: Sequence[Run]) -> set[Handle]:
    """Put back runs that were never started, without using up their attempt. Returns those that were there."""
    return await leased.hand_back(database, worker_id, runs) if runs else set()


async def _now(database: Database) -> datetime:
    """Return the database's time: the bound that we keep of it, or a fresh reading where we keep none yet."""
    known = database.clock.now()
    return moment_of(known) if math.isfinite(known) else await database.read_clock()


async def _finish(database: Database, worker_id: UUID, plain: Sequence[Finished]) -> list[Finished]:
    """Record plain successes. Returns those whose run was not there, or which the store refuses."""
    there, _ = await _sent(plain, lambda batch: leased.finish(database, worker_id, batch))
    if len(there) == len(plain):
        return []
    known = set(there)
    return [item for item in plain if (item.run.run_id, item.run.fence) not in known]


async def _settle_moved(database: Database, worker_id: UUID, moved: Sequence[Moved]) -> list[Run]:
    if not moved:
        return []
    found, failed = await _sent(moved, lambda batch: leased.settle(database, worker_id, batch, HORIZON))
    there = {*found, *failed}  # the refused ones are still leased to us
    missing = [item for item in moved if (item.run.run_id, item.run.fence) not in there]
    refused = await _refused(database, worker_id, missing) if missing else []
    if failed:
        stuck = [item.run for item in moved if (item.run.run_id, item.run.fence) in failed]
        raise Unstorable(stuck, refused, next(iter(failed.values())))
    return refused


async def _refused(database: Database, worker_id: UUID, missing: Sequence[Moved]) -> list[Run]:
    """Record the late outcomes of runs that were not there. Returns those runs."""
    ours = await leased.already_settled(database, worker_id, [(item.run.run_id, item.run.fence) for item in missing])
    # A loss that we report because a child died is no news to those who recorded a loss: us, or the reaper.
    refused = [item for item in missing if (item.run.run_id, item.run.fence) not in ours and item.outcome != "lost"]
    if refused:
        await leased.record_fenced(database, worker_id, refused)
    return [item.run for item in refused]


async def _apply(batch: Sequence[_Item], send: _Send[_Item]) -> set[Handle]:
    """Send a batch, bad rows without details. Raises the error of one that is refused even so, when all others are sent."""
    there, failed = await _sent(batch, send)
    for error in failed.values():
        raise error
    return set(there)


async def _sent(batch: Sequence[_Item], send: _Send[_Item]) -> _Sent:
    """Send a batch; on a data error, halve it down to the bad row and send that without details."""

    async def bare(item: _Item, _: Exception) -> _Sent:
        try:
            return await send([_bare(item)]), {}
        except BAD_ROW as error:
            return set(), {(item.run.run_id, item.run.fence): error}

    return await _halved(batch, send, bare)


async def _halved(
    batch: Sequence[_Some], send: _Send[_Some], alone: Callable[[_Some, Exception], Awaitable[_Sent]]
) -> _Sent:
    """Send a batch; on a data error, halve it down to the bad row, which is left to `alone`."""
    if not batch:
        return set(), {}
    try:
        return await send(batch), {}
    except BAD_ROW as error:
        if len(batch) == 1:
            return await alone(batch[0], error)
    middle = len(batch) // 2
    there, failed = await _halved(batch[:middle], send, alone)
    more, worse = await _halved(batch[middle:], send, alone)
    return set(there).union(more), failed | worse


def _is_plain(run: Run, outcome: Succeeded) -> bool:
    """Return whether a success has no effect but a plain record."""
    if outcome.detail is not None or outcome.reason is not None:
        return False
    return not (run.policy.has_consequence or run.history.missed)


def _bare(item: _Item) -> _Item:
    """Remove everything that could be refused."""
    if isinstance(item, Finished):
        return msgspec.structs.replace(item, result=None)
    return msgspec.structs.replace(item, result=None, detail=None, reason="the outcome could not be stored")


def _finished(item: Settled) -> Finished | None:
    """Return an attempt as the plain success that it is; None: it is another."""
    if item.started_at is None or item.finished_at is None:
        return None
    started, finished = item.started_at.timestamp(), item.finished_at.timestamp()
    end = end_of(item.run, started, finished, item.outcome, left_behind=item.left_behind)
    return end if isinstance(end, Finished) else None


def _settled(item: Finished) -> Settled:
    return Settled(item.run, moment_of(item.started), moment_of(item.finished), item.outcome)


def _moved(item: Settled, rng: Rng, now: datetime) -> Moved:
    """Decide what becomes of one run; one that cannot be decided must not delay the others."""
    try:
        return _decided(item, rng, now)
    except (ArithmeticError, TypeError, ValueError) as error:
        reason = storable(f"its next state could not be decided: {error!r}", _REASON_CHARACTERS_MAX)
        return Moved(item.run, item.started_at, item.finished_at, _words(item.outcome)[0], "dead", reason=reason)


def _decided(item: Settled, rng: Rng, now: datetime) -> Moved:
    run, outcome = item.run, item.outcome
    name, result, detail = _words(outcome)
    reason = outcome.reason and storable(outcome.reason, _REASON_CHARACTERS_MAX)
    transition = decide(run, outcome, rng.uniform(), now)
    became, delay, losses, suspect, why = _effect(transition)
    recorded_detail = _with_missed(detail, run)
    return Moved(
        run,
        item.started_at,
        item.finished_at,
        name,
        became,
        delay,
        losses,
        suspect,
        why or reason,
        result,
        recorded_detail,
        transition.history if isinstance(transition, WaitFor) else None,
    )


def _with_missed(detail: str | None, run: Run) -> str | None:
    """Record how many missed occurrences a run stood for: its options, which have that, end with it."""
    if not run.history.missed:
        return detail
    known = {} if detail is None else msgspec.json.decode(detail)
    return msgspec.json.encode({**known, "missed": run.history.missed}).decode()


def _effect(transition: Transition) -> tuple[str, timedelta, int, bool, str | None]:
    match transition:
        case Finish(state, reason):
            return state, timedelta(), 0, False, reason and storable(reason, _REASON_CHARACTERS_MAX)
        case WaitFor(delay, losses, suspect):
            return "retrying", min(delay, DELAY_MAX), losses, suspect, None
        case Bury(reason, losses, suspect):
            return "dead", timedelta(), losses, suspect, storable(reason, _REASON_CHARACTERS_MAX)
    assert_never(transition)


def name_of(outcome: Outcome) -> str:
    """Return an outcome as history names it."""
    return _words(outcome)[0]


def _words(outcome: Outcome) -> tuple[str, str | None, str | None]:
    match outcome:
        case Succeeded(result, detail):
            return "succeeded", result, detail
        case Failed(detail=detail):
            return "failed", None, detail
        case TimedOut(detail=detail):
            return "timed_out", None, detail
        case Lost():
            return "lost", None, None
        case Cancelled():
            return "cancelled", None, None
        case Snoozed():
            return "snoozed", None, None
        case Expired() | Spent():
            return "skipped", None, None
    assert_never(outcome)
