"""Gather: submits of one moment share a transaction, and each caller gets an answer of its own."""

import asyncio

import pytest

from duly.clock import Rng
from duly.domain.errors import Refused
from duly.domain.tenancy.audit import Actor
from duly.moves.gather import AT_ONCE_MAX, TOGETHER_MAX, Gatherer
from duly.store.connection.database import Unavailable
from tests.builders import a_submission, counts

ANNA = Actor("key", "a" * 10, "anna")


class Counting:
    """A database that counts what is asked of it, and may be away."""

    def __init__(self, database) -> None:
        self._database = database
        self.asked = 0
        self.is_away = False

    async def fetch(self, query, *args):
        self.asked += 1
        if self.is_away:
            raise Unavailable("away")
        return await self._database.fetch(query, *args)


@pytest.fixture
def counting(database):
    return Counting(database)


@pytest.fixture
def gatherer(counting):
    return Gatherer(counting, Rng(7))


async def test_one_that_comes_alone_goes_alone(gatherer, counting, database):
    made = await gatherer.submit(a_submission(), 1, ANNA)

    assert not made.replayed
    assert counting.asked == 1
    assert await counts(database) == {"ready": 1}


async def test_what_comes_while_the_store_is_busy_goes_together(gatherer, counting, database):
    payloads = [f'{{"n": {number}}}' for number in range(100)]

    made = await asyncio.gather(*(gatherer.submit(a_submission(payload=payload), 1, ANNA) for payload in payloads))

    assert counting.asked <= AT_ONCE_MAX
    rows = {
        row["run_id"]: row["payload"] for row in await database.fetch("select run_id, payload::text from duly.ready")
    }
    assert [rows[one.job_id] for one in made] == payloads  # Each has the answer to its own.


async def test_no_more_go_together_than_is_good(gatherer, counting):
    await asyncio.gather(*(gatherer.submit(a_submission(), 1, ANNA) for _ in range(3 * TOGETHER_MAX)))

    assert counting.asked == 3


async def test_tenants_do_not_share(gatherer, database):
    await database.execute("insert into duly.tenants (tenant, name, created_at) values (2, 'two', duly.clock_now())")

    made = await asyncio.gather(*(gatherer.submit(a_submission(), 1 + number % 2, ANNA) for number in range(10)))

    rows = {row["run_id"]: row["tenant"] for row in await database.fetch("select run_id, tenant from duly.ready")}
    assert [rows[one.job_id] for one in made] == [1, 2] * 5


async def test_one_that_is_refused_holds_up_no_other(gatherer, database, clock):
    past = a_submission(at=clock.at.replace(year=2020))
    asked = [a_submission(), past, a_submission(), a_submission()]

    answers = await asyncio.gather(*(gatherer.submit(job, 1, ANNA) for job in asked), return_exceptions=True)

    assert [isinstance(answer, Refused) for answer in answers] == [False, True, False, False]
    assert await counts(database) == {"ready": 3}


async def test_when_the_store_is_away_everyone_is_told_and_the_next_are_taken(gatherer, counting, database):
    counting.is_away = True
    answers = await asyncio.gather(
        *(gatherer.submit(a_submission(), 1, ANNA) for _ in range(5)), return_exceptions=True
    )
    assert all(isinstance(answer, Unavailable) for answer in answers)

    counting.is_away = False
    await gatherer.submit(a_submission(), 1, ANNA)
    assert await counts(database) == {"ready": 1}


async def test_a_caller_that_leaves_takes_nobody_along(gatherer, database):
    leaving = asyncio.create_task(gatherer.submit(a_submission(), 1, ANNA))
    staying = asyncio.create_task(gatherer.submit(a_submission(), 1, ANNA))
    await asyncio.sleep(0)
    leaving.cancel()

    assert not (await staying).replayed
    assert await counts(database) == {"ready": 2}  # What was on its way is made all the same.
