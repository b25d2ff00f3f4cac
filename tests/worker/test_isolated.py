"""Runs in child processes and suspects: what keeps one from being started harms neither it nor its slot."""

import asyncio
import threading
import time
from itertools import pairwise
from typing import Any

import asyncpg
import pytest

from duly.clock import Rng
from duly.domain.runs.outcome import Failed
from duly.domain.runs.retry import Retry
from duly.domain.runs.run import Run
from duly.log import Log
from duly.moves.cancel import cancel_run
from duly.moves.settle import Settled
from duly.store.boxes import runs
from duly.store.tables import workers
from duly.worker.execute.child_processes import ChildProcess, ChildProcesses
from duly.worker.execute.executor import Ended, Executor
from duly.worker.execute.isolated import IsolatedRuns
from duly.worker.held_runs import HeldRun
from duly.worker.slots import Kind
from duly.worker.targets import Targets
from tests.worker import app
from tests.worker.stories import (
    PATIENCE_SECONDS,
    a_run,
    attempts_of,
    ended,
    in_box,
    registry_of,
    submitted,
    until,
    working,
)

THREE = Retry(3, base_seconds=0.001)


class WorkerLease:
    """A lease that stands until somebody says otherwise."""

    is_safe = True


class ProcessPool:
    """A crew whose children take their time: what happens meanwhile is `meanwhile`."""

    def __init__(self, meanwhile: Any) -> None:
        self._meanwhile = meanwhile
        self.asked: list[float | None] = []

    async def run(self, run: Run, *_: Any, may_start: Any, **__: Any) -> None:
        self._meanwhile()
        self.asked.append(may_start())


@pytest.fixture
async def story(store):
    """Gives what runs apart, its worker_lease, and what came of it."""
    worker_lease = WorkerLease()
    came: list[Ended] = []
    executor = Executor(
        registry_of(),
        Targets(),
        loop=asyncio.get_running_loop(),
        threads=0,
        clock=store.clock,
        is_safe=lambda: True,
        on_ended=came.extend,
    )

    def make(meanwhile: Any) -> tuple[IsolatedRuns, ProcessPool]:
        process_pool: Any = ProcessPool(meanwhile)
        services: Any = type("RunServices", (), {"on_message": None})
        line: Any = worker_lease
        isolated = IsolatedRuns(
            store,
            Rng().uuid(),
            line,
            {Kind.CHILD: process_pool},
            executor,
            services,
            on_ended=came.extend,
            on_unable=came.extend,
            is_recalled=lambda _: False,
            log=Log("isolated"),
        )
        return isolated, process_pool

    return make, worker_lease, came


def held(run: Run) -> HeldRun:
    intake: Any = None
    return HeldRun(run, Kind.CHILD, intake)


async def test_isolated_run_that_waits_past_its_lease_is_not_started(story):
    """A worker that was frozen while its children loaded wakes here, before it looks at its lease."""
    make, worker_lease, came = story
    isolated, process_pool = make(lambda: setattr(worker_lease, "is_safe", False))
    run = a_run()

    await isolated.run(held(run))

    assert process_pool.asked == [None]
    assert came == [Ended(Kind.CHILD, run, None)]


async def test_an_error_of_ours_fails_the_run_and_frees_its_slot(story, monkeypatch):
    def broken(self: Executor, run: Run) -> Settled | None:
        raise OverflowError("too late for words")

    monkeypatch.setattr(Executor, "expired", broken)
    make, _, came = story
    isolated, process_pool = make(lambda: None)

    await isolated.run(held(a_run()))

    [one] = came
    assert isinstance(one.settled.outcome, Failed)
    assert "too late for words" in one.settled.outcome.reason
    assert process_pool.asked == []


async def test_runs_for_which_no_child_can_be_started_are_handed_back_unused(url, store, monkeypatch):
    """They would have used up their attempts before anybody had seen them."""
    real, scarce, tried = ChildProcesses._spawn, threading.Event(), []
    scarce.set()

    async def spawn(self: ChildProcesses) -> ChildProcess:
        if scarce.is_set():
            tried.append(asyncio.get_running_loop().time())
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return await real(self)

    monkeypatch.setattr(ChildProcesses, "_spawn", spawn)
    async with working(url, app.app.registry, app_path=app.PATH, threads=1) as worker:
        run_id = await submitted(store, "add", payload={"a": 1, "b": 2}, timeout=60, retry=THREE)
        await until(lambda: len(tried) > 3)
        assert await attempts_of(store, run_id) == []
        scarce.clear()
        assert await ended(store, run_id) == "succeeded"
        await until(lambda: worker.health.running == 0)

    assert await attempts_of(store, run_id) == [(1, "succeeded")]
    gaps = [later - sooner for sooner, later in pairwise(tried)]
    assert gaps[-1] > gaps[0] > 0.2, "and less and less often"


async def test_isolated_run_with_an_unloadable_app_uses_its_attempts_and_is_dead(url, store):
    async with working(url, app.app.registry, app_path="tests.worker.app:nothing", threads=1) as worker:
        run_id = await submitted(store, "add", payload={"a": 1, "b": 2}, timeout=60, retry=THREE)
        assert await ended(store, run_id) == "dead"
        await until(lambda: worker.health.running == 0)

    found = await runs.find(store, run_id)
    assert found
    assert {attempt["outcome"] for attempt in found["attempts"]} == {"failed"}
    assert len(found["attempts"]) == 3
    assert all("has no app named 'nothing'" in attempt["reason"] for attempt in found["attempts"])


async def test_suspects_whose_announcement_fails_are_returned(url, store, monkeypatch):
    async def work() -> None: ...

    real = workers.announce
    failed: list[int] = []

    async def announce(*asked: Any) -> bool:
        if not failed:
            failed.append(1)
            raise asyncpg.exceptions.ReadOnlySQLTransactionError("cannot execute UPDATE in a read-only transaction")
        return await real(*asked)

    monkeypatch.setattr(workers, "announce", announce)
    run_id = await submitted(store, "work", retry=THREE)
    await store.execute("update duly.ready set suspect = true")
    async with working(url, registry_of(work)) as worker:
        assert await ended(store, run_id) == "succeeded"
        await until(lambda: worker.health.running == 0)

    assert failed == [1]
    assert await attempts_of(store, run_id) == [(1, "succeeded")]


async def never(*_: Any) -> ChildProcess:
    """Have no child for anybody."""
    await asyncio.Event().wait()
    raise AssertionError


async def test_run_that_waits_for_a_child_goes_back_unused_when_the_worker_stops(url, store, monkeypatch):
    monkeypatch.setattr(ChildProcesses, "take", never)
    async with working(url, app.app.registry, app_path=app.PATH, grace_seconds=PATIENCE_SECONDS) as worker:
        run_id = await submitted(store, "add", payload={"a": 1, "b": 2}, timeout=60)
        await until(lambda: worker.health.running == 1)
        stopped_at = time.monotonic()

    assert time.monotonic() - stopped_at < PATIENCE_SECONDS / 2
    assert await in_box(store, "ready") == 1
    assert await attempts_of(store, run_id) == []


async def test_run_that_waits_for_a_child_can_be_cancelled(url, store, monkeypatch):
    monkeypatch.setattr(ChildProcesses, "take", never)
    async with working(url, app.app.registry, app_path=app.PATH) as worker:
        run_id = await submitted(store, "add", payload={"a": 1, "b": 2}, timeout=60)
        await until(lambda: worker.health.running == 1)
        await cancel_run(store, run_id)
        assert await ended(store, run_id) == "cancelled"
        await until(lambda: worker.health.running == 0)


async def test_wait_for_a_child_is_no_part_of_the_attempt(url, store, monkeypatch):
    real = ChildProcesses.take

    async def late(*asked: Any) -> ChildProcess:
        child = await real(*asked)
        await asyncio.sleep(1.0)
        return child

    monkeypatch.setattr(ChildProcesses, "take", late)
    async with working(url, app.app.registry, app_path=app.PATH):
        run_id = await submitted(store, "add", payload={"a": 1, "b": 2}, timeout=60)
        assert await ended(store, run_id) == "succeeded"

    found = await runs.find(store, run_id)
    assert found
    [attempt] = found["attempts"]
    assert (attempt["started_at"] - attempt["due_at"]).total_seconds() >= 1.0
