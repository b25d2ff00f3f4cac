"""Wake-up hints inside the transaction of a submit: sent with its commit, by one transaction at a time, in nobody's way."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest
from msgspec.structs import replace

from duly.domain.runs.run import HORIZON
from duly.domain.tenancy.audit import Actor
from duly.moves.submit import submit, submit_alike, submit_each, submit_many
from duly.store.tables.jobs import Submitted
from tests.builders import a_key, a_submission, a_worker, claimed, counts, settled
from tests.hints import a_submit_that_stays_open, listening

SUBMIT = "select duly.submit('send_mail', queue => 'mail')"
MAIL = a_submission(handler="send_mail", queue="mail")


@pytest.fixture
async def heard(database):
    async with listening(database.url) as heard:
        yield heard


@pytest.fixture
async def caller(database):
    """A program with a connection of its own."""
    connection = await asyncpg.connect(database.url)
    yield connection
    await connection.close()


async def one(database, job) -> Submitted:
    return await submit(database, job, key=a_key())


async def many(database, job) -> Submitted:
    return (await submit_many(database, [job, job], key=a_key()))[1]


async def alike(database, job) -> Submitted:
    return (await submit_alike(database, job, ["{}", '{"n": 2}'], key=a_key()))[1]


async def large(database, job) -> Submitted:
    payload = f'{{"text": "{"x" * 2000}"}}'
    return (await submit_alike(database, job, [payload], key=a_key()))[0]


async def one_keyed(database, job, *, key):
    return [await submit(database, job, key=key)]


async def many_keyed(database, job, *, key):
    return await submit_many(database, [job, job], key=key)


async def alike_keyed(database, job, *, key):
    return await submit_alike(database, job, ["{}"], key=key)


KEYED = pytest.mark.parametrize("submit", [one_keyed, many_keyed, alike_keyed])
WAYS = pytest.mark.parametrize("way", [one, many, alike, large])


@WAYS
async def test_a_submit_wakes_the_workers_that_have_its_handler_with_its_commit(database, heard, way):
    submitted = await way(database, MAIL)

    assert not submitted.needs_hint
    assert await heard.all() == [("mail", "send_mail")]


@WAYS
async def test_a_run_due_within_the_horizon_wakes_them_too_and_a_later_one_nobody(database, heard, way):
    soon, later = HORIZON, HORIZON + timedelta(seconds=1)
    assert not (await way(database, replace(MAIL, delay=later))).needs_hint
    assert await heard.all() == []

    assert not (await way(database, replace(MAIL, delay=soon))).needs_hint
    assert await heard.all() == [("mail", "send_mail")]


@WAYS
async def test_a_run_that_waits_for_a_concurrency_key_wakes_nobody(database, heard, way):
    limited = a_submission(handler="send_mail", queue="mail", concurrency=("key", 1))

    assert not (await way(database, limited)).needs_hint
    assert await heard.all() == []


@KEYED
async def test_a_repeated_submit_leaves_the_hint_to_its_caller_because_the_first_answer_may_be_lost(
    database, heard, submit
):
    await submit(database, MAIL, key="k")
    assert await heard.all() == [("mail", "send_mail")]

    [again, *_] = await submit(database, MAIL, key="k")

    assert (again.replayed, again.needs_hint) == (True, True)
    assert await heard.all() == [("mail", "send_mail")]


@KEYED
async def test_a_repeated_submit_that_is_due_later_needs_no_hint(database, submit):
    later = replace(MAIL, delay=HORIZON + timedelta(minutes=1))
    await submit(database, later, key="k")

    [again, *_] = await submit(database, later, key="k")

    assert (again.replayed, again.needs_hint) == (True, False)


async def test_a_batch_of_several_handlers_sends_one_hint_to_all(database, heard):
    jobs = [a_submission(handler=f"handler-{number}") for number in range(100)]

    await submit_many(database, jobs, key=a_key())

    assert await heard.all() == [("", "")]


async def test_a_submit_in_sql_wakes_the_workers_when_its_transaction_commits(caller, heard):
    transaction = caller.transaction()
    await transaction.start()
    await caller.execute(SUBMIT)
    await caller.execute(SUBMIT)
    assert await heard.all() == []

    await transaction.commit()

    assert await heard.all() == [("mail", "send_mail")]


async def test_a_submit_that_is_rolled_back_wakes_nobody(caller, heard):
    transaction = caller.transaction()
    await transaction.start()
    await caller.execute(f"savepoint undone; {SUBMIT}; rollback to savepoint undone")
    await caller.execute("select duly.submit('send_report')")
    await transaction.commit()
    assert await heard.all() == [("default", "send_report")]

    undone = caller.transaction()
    await undone.start()
    await caller.execute(SUBMIT)
    await undone.rollback()

    assert await heard.all() == [("default", "send_report")]


@WAYS
async def test_beside_a_transaction_that_stays_open_a_submit_is_not_delayed_and_says_that_it_needs_a_hint(
    database, heard, way
):
    async with a_submit_that_stays_open(database.url), asyncio.timeout(1):
        submitted = await way(database, MAIL)

    assert submitted.needs_hint
    assert await heard.all() == []
    assert not (await way(database, MAIL)).needs_hint, "the other has ended"
    assert await heard.all() == [("mail", "send_mail")]


async def test_submits_of_several_callers_in_one_statement_say_that_they_need_a_hint(database, heard):
    each = [(MAIL, Actor("key", "a" * 10, "anna")), (a_submission(), Actor("key", "b" * 10, "berta"))]
    async with a_submit_that_stays_open(database.url):
        submitted = await submit_each(database, each, key=a_key(), tenant=1)

    assert [one.needs_hint for one in submitted] == [True, True]
    assert not any(one.needs_hint for one in await submit_each(database, each, key=a_key(), tenant=1))
    assert await heard.all() == [("", "")]


async def test_no_move_but_submit_notifies_inside_its_transaction(database, heard):
    worker_id = await a_worker(database)
    await submit(database, a_submission(), key=a_key())
    assert len(await heard.all()) == 1

    [run] = await claimed(database, worker_id)
    await settled(database, worker_id, run)

    assert len(await heard.all()) == 1
    assert await counts(database) == {}
