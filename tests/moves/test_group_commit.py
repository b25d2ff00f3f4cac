"""Group commit: submits of one moment share a transaction, and each caller gets an answer of its own."""

import asyncio

import pytest

from duly.clock import Rng
from duly.domain.errors import Refused
from duly.domain.tenancy.audit import Actor
from duly.domain.tenancy.sealing import no_keyring
from duly.moves.group_commit import AT_ONCE_MAX, TOGETHER_MAX, GroupCommit
from duly.store.connection.database import Unavailable
from tests.builders import a_submission, counts

ANNA = Actor("key", "a" * 10, "anna")


class Counting:
    """A database that counts what is asked of it in Anna's name, and may be away."""

    in_transaction = False
    actor = ANNA
    keyring = staticmethod(no_keyring)

    def __init__(self, database) -> None:
        self._database = database
        self.asked = 0
        self.is_away = False

    def acting_as(self, actor):
        assert actor is ANNA
        return self

    async def fetch(self, query, *args):
        self.asked += 1
        if self.is_away:
            raise Unavailable("away")
        return await self._database.fetch(query, *args)


@pytest.fixture
def counting(database):
    return Counting(database)


@pytest.fixture
def submit(counting):
    group = GroupCommit(counting, Rng(7))
    return lambda job, tenant=1: group.submit(counting, job, key=None, tenant=tenant)


async def test_single_submit_is_committed_alone(submit, counting, database):
    made = await submit(a_submission())

    assert not made.replayed
    assert counting.asked == 1
    assert await counts(database) == {"ready": 1}


async def test_submits_that_arrive_while_the_store_is_busy_share_a_transaction(submit, counting, database):
    payloads = [f'{{"n": {number}}}' for number in range(100)]

    made = await asyncio.gather(*(submit(a_submission(payload=payload)) for payload in payloads))

    assert counting.asked <= AT_ONCE_MAX
    rows = {
        row["run_id"]: row["payload"] for row in await database.fetch("select run_id, payload::text from duly.ready")
    }
    assert [rows[one.job_id] for one in made] == payloads  # Each has the answer to its own.


async def test_no_more_go_together_than_is_good(submit, counting):
    await asyncio.gather(*(submit(a_submission()) for _ in range(3 * TOGETHER_MAX)))

    assert counting.asked == 3


async def test_tenants_do_not_share(submit, database):
    await database.execute("insert into duly.tenants (tenant, name, created_at) values (2, 'two', duly.clock_now())")

    made = await asyncio.gather(*(submit(a_submission(), 1 + number % 2) for number in range(10)))

    rows = {row["run_id"]: row["tenant"] for row in await database.fetch("select run_id, tenant from duly.ready")}
    assert [rows[one.job_id] for one in made] == [1, 2] * 5


async def test_refused_submit_blocks_no_other(submit, database, clock):
    past = a_submission(at=clock.at.replace(year=2020))
    asked = [a_submission(), past, a_submission(), a_submission()]

    answers = await asyncio.gather(*(submit(job) for job in asked), return_exceptions=True)

    assert [isinstance(answer, Refused) for answer in answers] == [False, True, False, False]
    assert await counts(database) == {"ready": 3}


async def test_group_commit_fails_every_caller_of_an_outage_and_then_recovers(submit, counting, database):
    counting.is_away = True
    answers = await asyncio.gather(*(submit(a_submission()) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(answer, Unavailable) for answer in answers)

    counting.is_away = False
    await submit(a_submission())
    assert await counts(database) == {"ready": 1}


async def test_cancelled_submit_does_not_cancel_the_others(submit, database):
    leaving = asyncio.create_task(submit(a_submission()))
    staying = asyncio.create_task(submit(a_submission()))
    await asyncio.sleep(0)
    leaving.cancel()

    assert not (await staying).replayed
    assert await counts(database) == {"ready": 2}  # What was on its way is made all the same.
