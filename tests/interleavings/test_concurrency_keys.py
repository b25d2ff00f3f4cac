"""Two who come to a line or a rate, leave it, or change what it allows, in every order: nobody is let in too early, or twice."""

import pytest

from duly.domain.runs.outcome import Succeeded
from duly.domain.runs.run import HORIZON
from duly.moves.cancel import CancelAnswer, cancel_run
from duly.moves.settle import Settled, hand_back, settle
from duly.moves.stage import BATCH_MAX
from duly.moves.submit import submit_many
from duly.store.boxes import timers
from duly.store.tables import concurrency_keys
from tests.builders import (
    RNG,
    a_key,
    a_scheduler,
    a_submission,
    a_worker,
    boxes_of,
    claimed,
    counts,
    hold,
    staged,
)
from tests.clock import START

LINE = "orders"
STORIES: list[type] = []


def story(told: type) -> type:
    """Take a story up."""
    STORIES.append(told)
    return told


async def in_a_line(database, number):
    """Submit runs of one line. Gives them in order."""
    jobs = [a_submission(fifo=LINE) for _ in range(number)]
    return [one.job_id for one in await submit_many(database, jobs, key=a_key())]


async def at_a_rate(database, number, per_second=0.5):
    """Submit runs of one rate."""
    jobs = [a_submission(rate=("mail", per_second, 1)) for _ in range(number)]
    return [one.job_id for one in await submit_many(database, jobs, key=a_key())]


def staging(holder, epochs):
    """Give a stage as a move, without the look at cohorts."""
    return lambda side: timers.stage(side, holder, epochs, HORIZON, max(1, BATCH_MAX // len(epochs)))


def settling(worker_id, run):
    """Give the settle of a run that went well as a move."""
    return lambda side: settle(side, worker_id, [Settled(run, START, START, Succeeded())], RNG)


async def two_schedulers(database, *run_ids):
    """Give two stages as moves: of the runs each scheduler holds every other one."""
    schedulers = [RNG.uuid(), RNG.uuid()]
    held = [await hold(database, scheduler_id) for scheduler_id in (*schedulers, *schedulers)][2:]
    for number, run_id in enumerate(run_ids):
        await database.execute("update duly.timers set shard = $2 where run_id = $1", run_id, min(held[number % 2]))
    return [staging(*one) for one in zip(schedulers, held, strict=True)]


@story
class TwoSchedulersBringOneLine:
    async def set_up(self, database):
        self.runs = await in_a_line(database, 2)
        return await two_schedulers(database, *self.runs)

    async def check(self, database, left, right):
        assert (left.count, right.count) == (1, 1)
        assert [await boxes_of(database, run_id) for run_id in self.runs] == [["ready"], ["blocked"]]


@story
class EarlierRunArrivesWhileTheActiveOneLeaves:
    async def set_up(self, database):
        self.runs = await in_a_line(database, 3)
        one, other = await two_schedulers(database, *self.runs)
        await one(database)  # the first and the third
        worker_id = await a_worker(database)
        [inside] = await claimed(database, worker_id)
        assert inside.run_id == self.runs[0]
        return settling(worker_id, inside), other

    async def check(self, database, refused, brought):
        assert (refused, brought.count) == ([], 1)
        assert [await boxes_of(database, run_id) for run_id in self.runs] == [[], ["ready"], ["blocked"]]


@story
class TheEarlierIsCancelledWhileTheLaterComes:
    async def set_up(self, database):
        self.runs = await in_a_line(database, 2)
        _, other = await two_schedulers(database, *self.runs)
        return lambda side: cancel_run(side, self.runs[0]), other

    async def check(self, database, cancelled, brought):
        assert (cancelled, brought.count) == (CancelAnswer.CANCELLED, 1)
        assert [await boxes_of(database, run_id) for run_id in self.runs] == [[], ["ready"]]


@story
class TheFirstInLineIsCancelledWhileThePlaceComesFree:
    async def set_up(self, database):
        self.runs = await in_a_line(database, 3)
        await staged(database)
        worker_id = await a_worker(database)
        [inside] = await claimed(database, worker_id)
        return settling(worker_id, inside), lambda side: cancel_run(side, self.runs[1])

    async def check(self, database, refused, cancelled):
        assert (refused, cancelled) == ([], CancelAnswer.CANCELLED)
        assert [await boxes_of(database, run_id) for run_id in self.runs] == [[], [], ["ready"]]


@story
class TwoComeToAFreeRate:
    async def set_up(self, database):
        return await two_schedulers(database, *await at_a_rate(database, 2))

    async def check(self, database, left, right):
        assert (left.count, right.count) == (1, 1)
        assert await counts(database) == {"blocked": 1, "ready": 1}


@story
class TwoGiveTurns:
    async def set_up(self, database):
        await at_a_rate(database, 6, per_second=1)
        await staged(database)
        await database.execute(
            "update duly.rate_limits set next_at = next_at - interval '3 seconds', look_at = '-infinity'"
        )
        return (lambda side: concurrency_keys.reserve(side, 10)), (lambda side: concurrency_keys.reserve(side, 10))

    async def check(self, database, left, right):
        moments = [row[0] for row in await database.fetch("select due_at from duly.ready order by due_at")]
        assert left.given + right.given == len(moments) - 2, "each turn is given once"
        assert len(moments) == 4


@story
class OneIsHandedBackWhileTurnsAreGiven:
    async def set_up(self, database):
        await at_a_rate(database, 3, per_second=0.2)
        await staged(database)
        worker_id = await a_worker(database)
        held = await claimed(database, worker_id)
        await database.execute("update duly.rate_limits set look_at = '-infinity'")
        return (lambda side: hand_back(side, worker_id, held)), (lambda side: concurrency_keys.reserve(side, 10))

    async def check(self, database, back, paced):
        assert (len(back), paced.given) == (1, 0)
        assert await counts(database) == {"timers": 1, "blocked": 2}


@story
class ALimitIsRaisedWhileOneComes:
    async def set_up(self, database):
        for _ in range(2):
            await submit_many(database, [a_submission(concurrency=("customer-7", 1))], key=a_key())
        await staged(database)
        await submit_many(database, [a_submission(concurrency=("customer-7", 1))], key=a_key())
        holder, epochs = await a_scheduler(database)
        return (lambda side: concurrency_keys.set_limits(side, 1, "customer-7", 2, None)), staging(holder, epochs)

    async def check(self, database, stood, brought):
        assert (stood, brought.count) == (True, 1)
        assert await counts(database) == {"blocked": 1, "ready": 2}


@story
class ALimitIsLoweredWhileOneLeaves:
    async def set_up(self, database):
        for _ in range(4):
            await submit_many(database, [a_submission(concurrency=("customer-7", 2))], key=a_key())
        await staged(database)
        worker_id = await a_worker(database)
        inside, _ = await claimed(database, worker_id)
        return (lambda side: concurrency_keys.set_limits(side, 1, "customer-7", 1, None)), settling(worker_id, inside)

    async def check(self, database, stood, refused):
        inside = (await counts(database)).get("ready", 0) + 1
        assert inside in (1, 2), "whoever was let in before it was lowered stays"
        assert refused == []


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_in_every_order_the_promise_holds(story, every_order):
    assert await every_order(story) >= 4
