"""Concurrent moves on a run that its receiver settles, in every order: it ends once, and is reported once."""

import pytest

from duly.domain.runs.callbacks import Callback, Callbacks
from duly.domain.runs.outcome import Failed, Succeeded, TimedOut
from duly.moves.cancel import carry_out
from duly.moves.settle import Settled, settle, settle_for
from duly.store.boxes import awaited, runs
from duly.store.boxes.awaited import RECEIVER, TakenOn
from duly.store.tables import callbacks
from tests.builders import (
    RNG,
    a_leased_run,
    an_active_schedule,
    an_awaited_run,
    boxes_of,
    counts,
    history_of,
    seconds,
    settled,
)
from tests.clock import START

THEN = Callbacks(end=Callback(url="https://hooks.example/done"))
STORIES: list[type] = []


def story(told: type) -> type:
    """Take a story up: `set_up` gives its two moves, `check` hears what they answered."""
    STORIES.append(told)
    return told


def receiving(run, outcome=None):
    """Give what a receiver says as a move: the look and the settle, without what is read afterwards."""

    async def receive(side) -> bool:
        found = await awaited.find(side, (run.run_id, run.fence))
        if found is None:
            return False
        ended = Settled(found.run, found.started_at, None, outcome or Succeeded())
        return bool(await settle_for(side, found.worker_id, [ended], RNG))

    return receive


def timing_out(run):
    """Give the settle of a run whose deadline has passed as a move."""
    ended = Settled(run, START, None, TimedOut(60))

    async def time_out(side) -> bool:
        return bool(await settle_for(side, RECEIVER, [ended], RNG))

    return time_out


def cancelling(run):
    """Give a cancel as a move: at once where the receiver has it, by a signal where a worker does."""

    async def cancel(side) -> str | None:
        if await awaited.cancel(side, [run.run_id], "cancelled"):
            return "cancelled"
        return "signalled" if await runs.signal(side, [run.run_id], "cancel") else None

    return cancel


def handing_over(worker_id, run):
    """Give the worker's part when the receiver has answered 202 as a move."""
    return lambda side: awaited.put(side, worker_id, [TakenOn(run, START, seconds(60))])


async def told(database) -> int:
    """Count the webhooks that tell."""
    return int(await database.fetchval("select count(*) from duly.ready where handler = '@webhook'"))


class OfAnOpenRun:
    """A run is in its receiver's hands, and somebody is to be told of its end."""

    async def set_up(self, database):
        self.run = await an_awaited_run(database, callbacks=THEN)
        return self.moves()

    def moves(self):
        raise NotImplementedError

    async def history(self, database):
        return [(outcome, became) for _, outcome, became in await history_of(database, self.run.run_id)]


@story
class ReceiveAndReceive(OfAnOpenRun):
    def moves(self):
        return receiving(self.run), receiving(self.run, Failed("no", retryable=False))

    async def check(self, database, succeeded, failed):
        assert succeeded != failed, "one of the two counts"
        ended = [("succeeded", "succeeded")] if succeeded else [("failed", "dead")]
        assert await self.history(database) == ended
        assert await told(database) == 1


@story
class ReceiveAndTimeOut(OfAnOpenRun):
    def moves(self):
        return receiving(self.run), timing_out(self.run)

    async def check(self, database, succeeded, timed_out):
        assert succeeded != timed_out
        ended = [("succeeded", "succeeded")] if succeeded else [("timed_out", "retrying")]
        assert await self.history(database) == ended
        assert await told(database) == (1 if succeeded else 0)


@story
class ReceiveAndCancel(OfAnOpenRun):
    def moves(self):
        return receiving(self.run), cancelling(self.run)

    async def check(self, database, succeeded, cancel):
        assert succeeded == (cancel != "cancelled")
        assert await self.history(database) == (
            [("succeeded", "succeeded")] if succeeded else [("cancelled", "cancelled")]
        )
        assert await told(database) == 1


@story
class TimeOutAndCancel(OfAnOpenRun):
    def moves(self):
        return timing_out(self.run), cancelling(self.run)

    async def check(self, database, timed_out, cancel):
        assert timed_out == (cancel != "cancelled")
        if timed_out:
            await carry_out(database)
        [*_, last] = await self.history(database)
        assert last[1] == ("retrying" if timed_out and cancel is None else "cancelled")


class OfARunThatIsHandedOver:
    """A worker has heard a 202, and hands the run over."""

    async def set_up(self, database):
        self.worker_id, self.run = await a_leased_run(database, callbacks=THEN)
        return handing_over(self.worker_id, self.run), self.other()

    def other(self):
        raise NotImplementedError


@story
class HandOverAndReceive(OfARunThatIsHandedOver):
    def other(self):
        return receiving(self.run)

    async def check(self, database, handed, succeeded):
        if not succeeded:  # It changed hands between the look and the settle: the next look finds it.
            assert handed
            assert await receiving(self.run)(database)
        assert await history_of(database, self.run.run_id) == [(1, "succeeded", "succeeded")]
        assert await told(database) == 1


@story
class HandOverAndCancel(OfARunThatIsHandedOver):
    def other(self):
        return cancelling(self.run)

    async def check(self, database, handed, cancel):
        assert handed
        assert cancel is not None
        if await boxes_of(database, self.run.run_id):  # The signal was for the worker, who has it no more.
            assert await carry_out(database) == 1
        assert [became for *_, became in await history_of(database, self.run.run_id)] == ["cancelled"]
        assert await told(database) == 1


@story
class SettleAndSettleAgain:
    """The answer to a settle was lost, and it is asked again while the first is still under way."""

    async def set_up(self, database):
        self.worker_id, self.run = await a_leased_run(database, callbacks=THEN)
        ended = Settled(self.run, START, START, Succeeded())
        return (lambda side: settle(side, self.worker_id, [ended], RNG),) * 2

    async def check(self, database, first, second):
        assert await told(database) == 1
        assert (await history_of(database, self.run.run_id))[0] == (1, "succeeded", "succeeded")


@story
class TellAndTell:
    """Two processes look for jobs that are to be told."""

    async def set_up(self, database):
        await an_active_schedule(database, name="follow-up")
        worker_id, run = await a_leased_run(database, callbacks=Callbacks(end=Callback(job="follow-up")))
        await settled(database, worker_id, run)
        [telling] = await callbacks.pending(database, callbacks.FIRST, 10)
        return (lambda side: callbacks.deliver(side, telling.callback_id),) * 2

    async def check(self, database, first, second):
        assert (first is None) != (second is None)
        assert await counts(database) == {"timers": 1, "ready": 1}


@pytest.mark.parametrize("told", STORIES, ids=[told.__name__ for told in STORIES])
async def test_in_every_order(every_order, told):
    assert await every_order(told) >= 4
