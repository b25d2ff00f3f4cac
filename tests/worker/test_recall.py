"""A recalled run: a worker gives back what it has not started, answers at once for what it has, and starts nothing recalled."""

import asyncio

from duly.domain.job import Recurring
from duly.moves.cancel import CancelAnswer, cancel_run
from duly.moves.pause import pause, resume
from duly.moves.recall import recalled
from duly.moves.submit import submit_recurring
from duly.store import runs
from duly.store.database import Database
from tests.builders import boxes_of, staged
from tests.worker.stories import ended, registry_of, submitted, until, working


async def a_one_shot_job(store: Database, seconds: float) -> Recurring:
    at = (await store.read_clock()).timestamp() + seconds
    moment = await store.fetchval(
        "select to_char(to_timestamp($1) at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')", at
    )
    return Recurring("work", "{}", "default", 5, {"trigger": {"type": "at", "at": moment}}, "once")


async def test_a_pause_before_the_fire_stops_it_and_a_resume_lets_it_fire_once(url, store):
    started = []

    async def work() -> None:
        started.append(True)

    async with working(url, registry_of(work)) as worker:
        job = await submit_recurring(store, await a_one_shot_job(store, 3.5), key="once")
        await staged(store)
        await until(lambda: worker.health.held == 1)

        assert await pause(store, job.job_id) == "paused"
        assert worker.health.held == 0, "the answer comes after the worker gave it back"
        await asyncio.sleep(3.5)
        assert started == []

        await resume(store, job.job_id, catch_up=True)
        await staged(store)
        await until(lambda: started)
    assert started == [True]


async def test_a_started_run_is_answered_for_at_once_and_asked_to_stop(url, store):
    started = asyncio.Event()

    async def work() -> None:
        started.set()
        await asyncio.sleep(60)

    async with working(url, registry_of(work)):
        run_id = await submitted(store, "work")
        await started.wait()
        async with asyncio.timeout(10), recalled(store, run_ids=[run_id]) as silent:
            assert silent == []
            assert await boxes_of(store, run_id) == ["leased"]
            assert await store.fetchval("select count(*) from duly.signals") == 0
        assert await cancel_run(store, run_id) is CancelAnswer.REQUESTED
        assert await ended(store, run_id) == "cancelled"


async def test_nobody_decides_and_the_run_starts_when_it_is_due(url, store):
    started = []

    async def work() -> None:
        started.append(True)

    async with working(url, registry_of(work)) as worker:
        run_id = await submitted(store, "work", delay=2)
        await until(lambda: worker.health.held == 1)
        async with recalled(store, run_ids=[run_id]) as silent:
            assert silent == []
            assert await boxes_of(store, run_id) == ["blocked"]
        assert await ended(store, run_id) == "succeeded"
    assert started == [True]
    assert len((await runs.find(store, run_id) or {})["attempts"]) == 1
