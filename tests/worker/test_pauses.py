"""The worker under a hold: what it has not started goes back unused, what runs ends, and after the lift all goes on."""

import asyncio
import threading
import time

import psycopg
import pytest

from duly.domain.limits.pause import EVERYTHING, Scope
from duly.moves.admin.pause import pause_scope, resume_scope
from duly.moves.workers.drain import drain, undrain
from duly.store.boxes import runs
from duly.worker import engine, watch
from duly.worker.execute.process_pool import ProcessPool
from tests.worker import app
from tests.worker.stories import (
    attempts_of,
    ended,
    engine_of,
    in_box,
    registry_of,
    state_of,
    submitted,
    until,
    working,
)

HOLD = (
    "insert into duly.pauses (tenant, queue, reason, paused_by, paused_at) values (null, null, 'stop', 'a test', now())"
)
LIFT = "delete from duly.pauses"


async def held(store, scope: Scope = EVERYTHING) -> None:
    await pause_scope(store, scope, reason="stop", paused_by="a test")


async def test_pause_returns_a_run_claimed_ahead_unused_and_it_starts_on_resume(url, store):
    started = []

    async def work() -> None:
        started.append(time.time())

    async with working(url, registry_of(work)) as worker:
        run_id = await submitted(store, "work", delay=4)
        await until(lambda: worker.health.held == 1)
        await held(store)
        assert await until(lambda: in_box(store, "ready")) == 1
        assert worker.health.held == 0
        assert await store.fetchval("select due_at > now() from duly.ready"), "it does not wait here until it is due"
        await until(lambda: store.fetchval("select due_at < now() - interval '0.3 seconds' from duly.ready"))
        assert started == []
        await resume_scope(store, EVERYTHING)
        assert await ended(store, run_id) == "succeeded"

    assert await attempts_of(store, run_id) == [(1, "succeeded")]


async def test_run_outside_the_paused_scope_stays_in_the_wheel_and_starts_on_time(url, store):
    async def work() -> None: ...

    async with working(url, registry_of(work), queues=("default", "mail")) as worker:
        kept = await submitted(store, "work", delay=1.5, queue="mail")
        run_id = await submitted(store, "work", delay=1.5)
        await until(lambda: worker.health.held == 2)
        await held(store, Scope(1, "mail"))
        assert await ended(store, run_id) == "succeeded"
        assert await state_of(store, kept) == "ready"
        await resume_scope(store, Scope(1, "mail"))
        assert await ended(store, kept) == "succeeded"

    assert await store.fetchval("select count(distinct fence) from duly.attempts") == 2, "one was claimed anew"


async def test_running_run_ends_normally_under_a_pause_and_no_other_starts(url, store):
    release = asyncio.Event()

    async def work() -> None:
        await release.wait()

    async with working(url, registry_of(work), slots=1) as worker:
        running = await submitted(store, "work")
        await until(lambda: worker.health.running == 1)
        waiting = await submitted(store, "work")
        await held(store)
        assert await until(lambda: in_box(store, "ready")) == 1  # also if the worker had claimed it before the pause
        release.set()
        assert await ended(store, running) == "succeeded"
        assert await state_of(store, waiting) == "ready"
        await resume_scope(store, EVERYTHING)
        assert await ended(store, waiting) == "succeeded"


async def test_a_run_that_waits_behind_a_handler_that_blocks_is_held_where_it_would_be_called(url, store):
    called = []

    def stop_from_within() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(HOLD)

    async def block() -> None:
        stop_from_within()
        time.sleep(1.2)

    async def work() -> None:
        called.append("work")

    first = await submitted(store, "block", priority=0)
    second = await submitted(store, "work", priority=9)
    async with working(url, registry_of(block, work)):
        assert await ended(store, first) == "succeeded"
        assert await until(lambda: in_box(store, "ready")) == 1
        assert called == []
        await resume_scope(store, EVERYTHING)
        assert await ended(store, second) == "succeeded"

    assert await attempts_of(store, second) == [(1, "succeeded")]


async def test_a_thread_looks_before_it_calls(url, store):
    """The slots of threads are as many as the threads; but one may be late to come free."""
    arrive, called = threading.Event(), []

    def work() -> None:
        called.append("work")

    async with working(url, registry_of(work), threads=1) as worker:
        executor = engine_of(worker)._executor
        assert executor._pool is not None
        for _ in range(2):
            executor._pool.submit(arrive.wait)
        run_id = await submitted(store, "work")
        await until(lambda: worker.health.running == 1)
        await held(store)
        await until(lambda: bool(executor.pauses))
        arrive.set()
        assert await until(lambda: in_box(store, "ready")) == 1
        assert called == []
        await resume_scope(store, EVERYTHING)
        assert await ended(store, run_id) == "succeeded"


@pytest.mark.parametrize("is_suspect", [False, True])
async def test_isolated_run_whose_child_is_still_starting_is_paused(url, store, tmp_path, monkeypatch, is_suspect):
    mark = tmp_path / "mark"
    run_id = await submitted(store, "sleep_until_stopped", payload={"mark": str(mark)}, timeout=60)
    if is_suspect:
        await store.execute("update duly.ready set suspect = true")
    taken, arrive = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    real = ProcessPool.__init__

    def slow(process_pool, children):
        real(process_pool, children)
        take = process_pool._children.take

        async def take_slowly(*asked):
            loop.call_soon_threadsafe(taken.set)
            while not arrive.is_set():
                await asyncio.sleep(0.01)
            return await take(*asked)

        process_pool._children.take = take_slowly

    monkeypatch.setattr(ProcessPool, "__init__", slow)
    async with working(url, app.app.registry, app_path=app.PATH) as worker:
        await asyncio.wait_for(taken.wait(), 20)
        await held(store)
        await until(lambda: bool(engine_of(worker)._executor.pauses))
        arrive.set()
        assert await until(lambda: in_box(store, "ready")) == 1
        assert await until(lambda: store.fetchval("select named = '{}' from duly.workers")), "no name is left behind"

    assert not mark.exists()
    assert await state_of(store, run_id) == "ready"
    assert await attempts_of(store, run_id) == []


async def test_a_worker_that_begins_under_a_hold_starts_nothing_until_the_lift(url, store):
    async def work() -> None: ...

    run_id = await submitted(store, "work")
    await held(store)
    before = await store.fetchval("select last_value from duly.fences")
    async with working(url, registry_of(work)) as worker:
        await until(lambda: bool(engine_of(worker)._watch.pauses))
        assert await state_of(store, run_id) == "ready"
        assert await store.fetchval("select last_value from duly.fences") == before, "it has claimed nothing"
        await resume_scope(store, EVERYTHING)
        assert await ended(store, run_id) == "succeeded"


async def test_on_old_news_nothing_is_started_before_a_look(url, store, monkeypatch):
    """No hint comes and no look is due: the age of the news alone makes the worker look."""
    started = []

    async def work() -> None:
        started.append(True)

    monkeypatch.setattr(engine, "LOOK_SECONDS", 60.0)
    monkeypatch.setattr(engine, "LOOK_IDLE_SECONDS", 60.0)
    async with working(url, registry_of(work)) as worker:
        await submitted(store, "work", delay=2.5)
        await until(lambda: worker.health.held == 1)
        await store.execute(HOLD)
        assert await until(lambda: in_box(store, "ready")) == 1
        assert started == []


async def test_silent_database_delays_due_runs_only_briefly(url, store, monkeypatch):
    real, is_silent = runs.look, threading.Event()

    async def look(*args):
        while is_silent.is_set():
            await asyncio.sleep(0.01)
        return await real(*args)

    async def work() -> None: ...

    monkeypatch.setattr(runs, "look", look)
    async with working(url, registry_of(work)) as worker:
        run_id = await submitted(store, "work", delay=2.5)
        await until(lambda: worker.health.held == 1)
        is_silent.set()
        assert await ended(store, run_id) == "succeeded"
        is_silent.clear()
    late = await store.fetchval("select extract(epoch from started_at - due_at)::float from duly.attempts")
    assert late < watch.HEAR_SECONDS + 1


async def test_after_the_lift_a_claim_is_not_handed_back_on_older_news(url, store, monkeypatch):
    async def work() -> None: ...

    run_id = await submitted(store, "work")
    await store.execute(HOLD)
    async with working(url, registry_of(work)) as worker:
        monkeypatch.setattr(engine, "LOOK_IDLE_SECONDS", watch.FRESH_SECONDS - 0.05)
        for _ in range(3):
            await until(lambda: bool(engine_of(worker)._watch.pauses))
            await store.execute(LIFT)
            await store.execute("notify duly_ready")
            assert await ended(store, run_id) == "succeeded"
            await store.execute(HOLD)
            run_id = await submitted(store, "work")

    drawn = await store.fetchval("select (select last_value from duly.fences) - min(fence) + 1 from duly.attempts")
    assert drawn == 3, "each run was claimed once"


async def test_drained_worker_finishes_its_runs_returns_the_rest_and_claims_no_more(url, store):
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await may_end.wait()

    async with working(url, registry_of(work)) as worker:
        first = await submitted(store, "work")
        await asyncio.wait_for(begun.wait(), 20)
        ahead = await submitted(store, "work", delay=4)
        await until(lambda: worker.health.held == 2)
        await drain(store, engine_of(worker).worker_id)
        await until(lambda: engine_of(worker)._watch.is_draining)
        later = await submitted(store, "work")
        may_end.set()

        assert await ended(store, first) == "succeeded"
        await until(lambda: worker.health.held == 0)
        assert [await state_of(store, run_id) for run_id in (ahead, later)] == ["ready", "ready"]

        await undrain(store, engine_of(worker).worker_id)
        assert await ended(store, later) == "succeeded"
