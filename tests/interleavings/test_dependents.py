"""Concurrent moves on runs with dependencies, in every order: none is forgotten, and none goes twice."""

from uuid import UUID

import pytest

from duly.domain.runs.outcome import Failed, Succeeded
from duly.moves.claim import claim
from duly.moves.settle import Settled, settle
from duly.moves.submit import submit
from duly.moves.waiting import check_dependents
from duly.store.boxes import history, runs
from duly.store.tables import dependencies
from tests.builders import HANDLER, QUEUE, RNG, a_key, a_ready_run, a_submission, a_worker, boxes_of, found_run

STORIES: list[type] = []
FAILS = Failed("no", retryable=False)


def story(told: type) -> type:
    """Take a story up: `set_up` gives its two moves, `check` hears what they answered."""
    STORIES.append(told)
    return told


class Story:
    """Two runs in a worker's hands, and one that may follow them."""

    expected: tuple[str, ...] = ("ready",)
    child: UUID

    async def set_up(self, database):
        self.worker_id = await a_worker(database)
        self.parents = [await a_ready_run(database), await a_ready_run(database)]
        self.held = {run.run_id: run for run in await claim(database, self.worker_id, [QUEUE], [HANDLER], 10)}
        return await self.moves(database)

    async def moves(self, database):
        raise NotImplementedError

    def settling(self, *parents, outcome=None):
        """Give the settle of parents, in this order, as a move."""
        items = [self.held[parent] for parent in parents]

        async def move(side):
            at = side.clock.at
            ends = [Settled(run, at, at, outcome or Succeeded()) for run in items]
            return await settle(side, self.worker_id, ends, RNG)

        return move

    def checking(self):
        """Give a look of maintenance as a move."""
        return lambda side: dependencies.check(side, 100)

    async def following(self, database, *parents, checked=True):
        child = await a_ready_run(database, depends_on=parents)
        if checked:
            await check_dependents(database)
        return child

    async def check(self, database, left, right):
        assert not isinstance(left, BaseException), left
        assert not isinstance(right, BaseException), right
        for _ in range(5):
            await database.clock.advance(1)
            await check_dependents(database)
        assert await history.verify(database) == []
        where = await boxes_of(database, self.child) or [(await found_run(database, self.child))["state"]]
        assert len(where) == 1
        assert where[0] in self.expected
        for table in ("dependencies", "dependents", "ended_dependencies", "dependency_checks"):
            assert await database.fetchval(f"select count(*) from duly.{table}") == 0, table


@story
class SubmittedAsItsParentSettles(Story):
    async def moves(self, database):
        parent = self.parents[0]

        async def submitting(side):
            self.child = (await submit(side, a_submission(depends_on=[parent]), key=a_key())).job_id

        return submitting, self.settling(parent)


@story
class SubmittedAsItsParentIsTakenBackForAnotherAttempt(Story):
    async def moves(self, database):
        parent = self.parents[0]

        async def submitting(side):
            self.child = (await submit(side, a_submission(depends_on=[(parent, "failure")]), key=a_key())).job_id

        return submitting, self.settling(parent, outcome=FAILS)


@story
class TwoParentsSettled(Story):
    async def moves(self, database):
        self.child = await self.following(database, *self.parents)
        return self.settling(self.parents[0]), self.settling(self.parents[1])


@story
class OneParentFailsAsTheOtherSucceeds(Story):
    expected = ("skipped",)

    async def moves(self, database):
        self.child = await self.following(database, *self.parents)
        return self.settling(self.parents[0], outcome=FAILS), self.settling(self.parents[1])


@story
class CheckedAsItsParentSettles(Story):
    async def moves(self, database):
        self.child = await self.following(database, self.parents[0], checked=False)
        return self.checking(), self.settling(self.parents[0])


@story
class CheckedTwice(Story):
    async def moves(self, database):
        await self.settling(self.parents[0])(database)
        self.child = await self.following(database, self.parents[0], checked=False)
        await database.execute(
            "insert into duly.dependency_checks (child, due_at) select child, due_at from duly.dependency_checks"
        )
        return self.checking(), self.checking()


@story
class SkipsOfTwoChainsCross(Story):
    """Each settle skips one and so touches a follower of the other's: whoever holds some followings asks for no more."""

    expected = ("skipped",)

    async def moves(self, database):
        first, second = self.parents
        ahead = [await self.following(database, first), await self.following(database, second)]
        self.child = await self.following(database, first, ahead[1])
        await self.following(database, second, ahead[0])
        return self.settling(first, outcome=FAILS), self.settling(second, outcome=FAILS)


@story
class BatchesOfTheSameInOppositeOrder(Story):
    async def moves(self, database):
        self.child = await self.following(database, *self.parents)
        await self.following(database, *reversed(self.parents))
        return self.settling(self.parents[0]), self.settling(self.parents[1])


@story
class CancelledAsItsParentSettles(Story):
    expected = ("ready", "cancelled")

    async def moves(self, database):
        self.child = await self.following(database, self.parents[0])
        return lambda side: runs.cancel(side, [self.child], "enough"), self.settling(self.parents[0])


@story
class CancelledAsItIsChecked(Story):
    expected = ("ready", "cancelled")

    async def moves(self, database):
        await self.settling(self.parents[0])(database)
        self.child = await self.following(database, self.parents[0], checked=False)
        return lambda side: runs.cancel(side, [self.child], "enough"), self.checking()


@pytest.mark.parametrize("told", STORIES)
async def test_in_every_order(told, every_order):
    assert await every_order(told) >= 2
