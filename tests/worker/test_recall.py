"""A recalled run: a worker gives back what it has not started, answers at once for what it has, and starts nothing recalled."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from duly.domain.jobs.job import Recurring
from duly.moves.cancel import CancelAnswer, cancel_run
from duly.moves.recall import recalled
from duly.moves.schedules.pause import Paused, pause, pause_naming, resume
from duly.moves.submit import submit_recurring
from duly.store.boxes import runs
from duly.store.connection.database import Database
from duly.worker import engine
from duly.worker.slots import Pool
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


async def test_started_run_answers_a_recall_at_once_and_can_still_be_cancelled(url, store):
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


async def test_recalled_run_starts_when_due_if_its_caller_decides_nothing(url, store):
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


async def test_a_due_run_without_a_slot_reads_ready_until_it_starts_and_can_be_cancelled(url, store, monkeypatch):
    monkeypatch.setitem(engine.STUCK_SECONDS, Pool.LOOP, 60.0)  # So that it stays with its worker.
    started, go_on = [], asyncio.Event()

    async def work(number: int) -> None:
        started.append(number)
        await go_on.wait()

    async def state_of(run_id: UUID) -> str:
        found = await runs.find(store, run_id)
        assert found is not None
        return str(found["state"])

    async with working(url, registry_of(work), slots=1) as worker:
        coming = [await submitted(store, "work", payload={"number": number}, delay=1.5) for number in (1, 2)]
        await until(lambda: worker.health.held == 2)
        await until(lambda: started)
        first, second = coming if started == [1] else reversed(coming)

        async def reads_ready() -> bool:
            return await state_of(second) == "ready"

        await until(reads_ready)
        assert worker.health.held == 2
        assert await state_of(first) == "running"
        assert await cancel_run(store, second) is CancelAnswer.CANCELLED
        go_on.set()
        assert await ended(store, first) == "succeeded"
        assert await state_of(second) == "cancelled"
    assert len(started) == 1


@pytest.mark.parametrize("is_last", [True, False])
async def test_pause_at_the_due_moment_recalls_a_run_without_a_slot(url, store, is_last):
    started, go_on = [], asyncio.Event()

    async def work(number: int = 0) -> None:
        started.append(number)
        await go_on.wait()

    async with working(url, registry_of(work), slots=1) as worker:
        moment = (await store.read_clock()).replace(microsecond=0) + timedelta(seconds=3)
        hourly = {"type": "interval", "every": "PT1H", "anchor": moment.isoformat()}
        schedule = {"trigger": hourly, "start": moment.isoformat(), "max_runs": 1 if is_last else None}
        job = await submit_recurring(
            store, Recurring("work", "{}", "default", 5, {k: v for k, v in schedule.items() if v}, "hourly"), key="once"
        )
        await staged(store)
        busy = (moment - await store.read_clock()).total_seconds() - 0.5
        await submitted(store, "work", payload={"number": 1}, delay=busy)
        await until(lambda: worker.health.held == 2)
        await until(lambda: started)
        await asyncio.sleep((moment - await store.read_clock()).total_seconds() + 0.03)

        assert await pause_naming(store, job.job_id, "later") == Paused("paused")

        go_on.set()
        await asyncio.sleep(1.0)
    assert started == [1]
