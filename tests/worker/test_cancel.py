"""Cancelling: what waits never starts, what runs is asked to stop, and the answer tells which."""

import asyncio
import threading
from datetime import timedelta

import pytest

from duly.domain.jobs.job import Recurring
from duly.moves.cancel import CancelAnswer, cancel_run
from duly.moves.claim import claim
from duly.moves.submit import submit_recurring
from duly.moves.trigger import trigger
from duly.store.boxes import leased, runs
from duly.worker import engine
from duly.worker.context import RunContext
from duly.worker.slots import Pool
from tests.worker import app
from tests.worker.stories import (
    PATIENCE_SECONDS,
    attempts_of,
    claim_by,
    ended,
    engine_of,
    registry_of,
    state_of,
    submitted,
    until,
    working,
)


async def test_a_run_that_is_not_due_for_long_never_reaches_a_worker(url, store):
    async def work() -> None: ...

    async with working(url, registry_of(work)):
        run_id = await submitted(store, "work", delay=3600)
        assert await cancel_run(store, run_id) == CancelAnswer.CANCELLED
        assert await ended(store, run_id) == "cancelled"


async def test_a_run_that_waits_in_the_wheel_is_not_started(url, store):
    started = []

    async def work() -> None:
        started.append(True)

    async with working(url, registry_of(work)) as worker:
        run_id = await submitted(store, "work", delay=3)
        await until(lambda: worker.health.held == 1)
        assert await cancel_run(store, run_id) == CancelAnswer.CANCELLED
        assert await ended(store, run_id) == "cancelled"
        await until(lambda: worker.health.held == 0)
        after = await submitted(store, "work", delay=3.2)
        await ended(store, after)

    assert started == [True]
    assert await attempts_of(store, run_id) == [(0, "cancelled")]


async def test_cancelled_waiting_run_never_starts_and_its_slot_goes_to_the_next(url, store, monkeypatch):
    monkeypatch.setitem(engine.STUCK_SECONDS, Pool.LOOP, 60)  # It is not handed back meanwhile.
    started, release = [], asyncio.Event()

    async def work(name: str) -> None:
        started.append(name)
        if name == "first":
            await release.wait()

    async with working(url, registry_of(work), slots=1) as worker:
        await submitted(store, "work", payload={"name": "first"})
        await until(lambda: started)
        second = await submitted(store, "work", payload={"name": "second"}, delay=0.5)
        await until(lambda: worker.health.waiting == 1)
        assert await cancel_run(store, second) == CancelAnswer.CANCELLED
        assert await ended(store, second) == "cancelled"
        third = await submitted(store, "work", payload={"name": "third"})
        release.set()
        assert await ended(store, third) == "succeeded"

    assert started == ["first", "third"]


async def test_an_async_handler_is_cancelled_where_it_waits(url, store):
    started, tidied = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            tidied.set()

    async with working(url, registry_of(work)):
        run_id = await submitted(store, "work")
        await asyncio.wait_for(started.wait(), 20)
        assert await cancel_run(store, run_id) == CancelAnswer.REQUESTED
        assert await ended(store, run_id) == "cancelled"

    assert tidied.is_set()
    assert await attempts_of(store, run_id) == [(1, "cancelled")]
    assert await cancel_run(store, run_id) == CancelAnswer.TOO_LATE


async def test_thread_handler_ends_when_it_checks_for_cancellation(url, store):
    started = threading.Event()

    def work(run: RunContext) -> None:
        started.set()
        for _ in range(2_000):
            run.raise_if_cancelled()
            threading.Event().wait(0.01)

    async with working(url, registry_of(work)):
        run_id = await submitted(store, "work")
        await until(started.is_set)
        await cancel_run(store, run_id)
        assert await ended(store, run_id) == "cancelled"


async def test_story_09_a_thread_that_does_not_look_has_the_last_word(url, store):
    started = threading.Event()

    def work(run: RunContext) -> bool:
        started.set()
        while not run.cancelled:
            threading.Event().wait(0.01)
        return True

    async with working(url, registry_of(work)):
        run_id = await submitted(store, "work")
        await until(started.is_set)
        assert await cancel_run(store, run_id) == CancelAnswer.REQUESTED
        assert await ended(store, run_id) == "succeeded"
        await until(lambda: _no_signals(store))


async def _no_signals(store):
    return await store.fetchval("select count(*) from duly.signals") == 0


async def test_a_child_process_is_stopped(url, store, tmp_path):
    mark = tmp_path / "mark"
    async with working(url, app.app.registry, app_path=app.PATH):
        run_id = await submitted(store, "sleep_until_stopped", payload={"mark": str(mark)}, timeout=60)
        await until(mark.exists)
        assert await cancel_run(store, run_id) == CancelAnswer.REQUESTED
        assert await ended(store, run_id) == "cancelled"

    assert mark.read_text() == "tidied"
    assert await attempts_of(store, run_id) == [(1, "cancelled")]


@pytest.mark.parametrize("delay", [2, 0], ids=["in the wheel", "due already"])
async def test_a_cancel_that_overtakes_the_answer_to_the_claim_is_not_forgotten(url, store, monkeypatch, delay):
    """The claim has committed, its rows are on their way, and the signal is read before they arrive."""
    started = []

    async def work() -> None:
        started.append(True)

    committed, arrive = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    async def slow_claim(*args):
        claimed = await claim(*args)
        if claimed:
            loop.call_soon_threadsafe(committed.set)
            while not arrive.is_set():
                await asyncio.sleep(0.01)
        return claimed

    claim_by(monkeypatch, slow_claim)
    monkeypatch.setattr(engine, "LOOK_IDLE_SECONDS", 0.05)
    async with working(url, registry_of(work)) as worker:
        run_id = await submitted(store, "work", delay=delay)
        await asyncio.wait_for(committed.wait(), 20)
        assert await cancel_run(store, run_id) == CancelAnswer.REQUESTED
        looks = _count_looks(monkeypatch)
        await until(lambda: len(looks) >= 2)
        assert worker.health.held == 0
        arrive.set()
        assert await ended(store, run_id) == "cancelled"

    assert started == []


def _count_looks(monkeypatch) -> list[bool]:
    looks: list[bool] = []
    real = runs.look

    async def look(*args):
        looks.append(True)
        return await real(*args)

    monkeypatch.setattr(runs, "look", look)
    return looks


@pytest.mark.parametrize("is_suspect", [False, True])
async def test_a_cancel_while_the_child_is_being_started_is_heeded(url, store, tmp_path, is_suspect):
    mark = tmp_path / "mark"
    run_id = await submitted(store, "sleep_until_stopped", payload={"mark": str(mark)}, timeout=60)
    if is_suspect:
        await store.execute("update duly.ready set suspect = true")
    async with working(url, app.app.registry, app_path=app.PATH) as worker:
        await until(lambda: worker.health.running == 1)
        await cancel_run(store, run_id)
        assert await ended(store, run_id) == "cancelled"


async def test_a_plain_function_that_does_not_stop_makes_room_for_the_next_run_and_is_fenced(url, store):
    started, release = [], threading.Event()

    def work() -> None:
        started.append(True)
        if len(started) == 1:
            release.wait(PATIENCE_SECONDS)

    shape = {"trigger": {"type": "cron", "expr": "0 0 1 1 *"}, "overlap": {"policy": "cancel_running"}}
    job_id = (await submit_recurring(store, Recurring("work", "{}", "default", 5, shape), key="yearly")).job_id
    async with working(url, registry_of(work)):
        first = (await trigger(store, job_id, key="first")).run_id
        await until(lambda: started)
        second = (await trigger(store, job_id, key="second")).run_id
        assert await state_of(store, second) == "blocked"

        assert await leased.void_overstayed(store, timedelta()) == [first]

        assert await ended(store, second) == "succeeded"
        assert await ended(store, first) == "cancelled"
        release.set()
        await until(lambda: attempts_are(store, first, [(1, "fenced"), (1, "lost")]))


async def attempts_are(store, run_id, expected):
    return await attempts_of(store, run_id) == expected


async def test_cancel_reaches_a_running_handler_while_its_worker_stops(url, store):
    started = asyncio.Event()

    async def slow() -> None:
        started.set()
        await asyncio.Event().wait()

    async with working(url, registry_of(slow), grace_seconds=3 * PATIENCE_SECONDS) as worker:
        run_id = await submitted(store, "slow")
        await asyncio.wait_for(started.wait(), PATIENCE_SECONDS)
        worker.stop()
        await until(lambda: engine_of(worker)._ended.is_set())
        assert await cancel_run(store, run_id) == CancelAnswer.REQUESTED
        assert await ended(store, run_id) == "cancelled"
