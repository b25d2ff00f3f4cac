"""Take an event: beside whoever changes the job that waits for it, and beside the same event once more."""

import asyncio

import pytest

from duly.domain.jobs.job import Recurring
from duly.moves.submit import submit_recurring
from duly.moves.take_event import Event, take_event
from tests.builders import a_key

WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
PAUSE = "update duly.jobs set state = 'paused'"
EDIT = "update duly.jobs set queue = 'mail', generation = 2"

TAKE = "select * from duly.take_event(1, '/shop', 'e1', 'placed', '{}'::jsonb, null::jsonb)"


class Undone(Exception):
    """Whoever took it first has given up."""


async def a_listener(database, **match):
    job = Recurring("greet", "{}", "default", 5, {"on_event": {"type": "placed", **match}})
    return (await submit_recurring(database, job, key=a_key())).job_id


async def taken(database, event_id="e1"):
    return await take_event(database, 1, Event(event_id, "/shop", "placed"), {})


async def until_it_waits(database):
    """Wait until a statement stands before a lock."""
    async with asyncio.timeout(10):
        while not await database.fetchval(WAITING):
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(("change", "queues"), [(PAUSE, []), (EDIT, ["mail"])])
async def test_job_changed_during_an_event_is_judged_by_its_new_state(database, change, queues):
    await a_listener(database)
    async with database.transaction() as connection:
        await connection.execute(change)
        taking = asyncio.create_task(taken(database))
        await until_it_waits(database)

    answer = await taking

    assert (answer.is_duplicate, answer.queues, len(answer.runs)) == (False, queues, len(queues))


async def test_event_whose_duplicate_is_rolled_back_creates_the_runs_itself(database):
    await a_listener(database)
    waiting = []

    async def undone():
        async with database.transaction() as connection:
            await connection.fetch(TAKE)
            waiting.append(asyncio.create_task(taken(database)))
            await until_it_waits(database)
            raise Undone

    with pytest.raises(Undone):
        await undone()
    answer = await waiting[0]

    assert (answer.is_duplicate, len(answer.runs)) == (False, 1)
    assert await database.fetchval("select count(*) from duly.ready") == 1


async def test_source_and_id_do_not_run_into_each_other(database):
    await a_listener(database)

    first = await take_event(database, 1, Event("b", "/a", "placed"), {})
    second = await take_event(database, 1, Event("", "/ab", "placed"), {})

    assert (first.is_duplicate, second.is_duplicate) == (False, False)
