"""A database that goes away under a running worker, for a moment or for longer than the lease."""

import asyncio
import os
import signal
import threading
import time
from datetime import timedelta

import pytest

from duly.store.boxes import history
from duly.worker.context import RunContext
from tests.outage import a_server, away
from tests.worker.stories import attempts_of, ended, reaping, registry_of, submitted, until, working


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A PostgreSQL of its own, which can be killed, and keeps what it has acknowledged."""
    with a_server(tmp_path_factory.mktemp("restart")) as running:
        yield running


@pytest.fixture
def url(server):
    server.revive()
    return server.url


async def test_worker_continues_under_the_same_lease_after_a_database_restart(server, url, store):
    finish = asyncio.Event()
    calls: list[str] = []

    async def slow(run: RunContext) -> None:
        calls.append(f"{run.id} {run.attempt}")
        await finish.wait()

    async with working(url, registry_of(slow), lease=timedelta(seconds=30)) as worker:
        before = await submitted(store, "slow")
        ahead = await submitted(store, "slow", delay=2)
        await until(lambda: worker.health.held == 2 and calls)
        async with away(server):
            finish.set()
            await until(lambda: len(calls) == 2)  # What it held came due while there was no database.
        after = await submitted(store, "slow")
        assert [await ended(store, run_id) for run_id in (before, ahead, after)] == ["succeeded"] * 3
        assert (worker.health.lives, worker.health.fenced) == (1, 0)

    for run_id in (before, ahead, after):
        assert await attempts_of(store, run_id) == [(1, "succeeded")]
    assert sorted(calls) == sorted(f"{run_id} 1" for run_id in (before, ahead, after))
    assert await history.verify(store) == []


async def test_outage_longer_than_the_lease_costs_no_finished_run_and_no_attempt(server, url, store):
    """Outcomes and unstarted runs of the life that ended are offered when the database is back, before anyone takes over."""
    finish = threading.Event()

    def work(run: RunContext) -> int:
        assert finish.wait(30)
        return run.attempt

    async def later(run: RunContext) -> int:
        return run.attempt

    async with working(url, registry_of(work, later), lease=timedelta(seconds=1.5)) as worker:
        finished = await submitted(store, "work")
        unstarted = await submitted(store, "later", delay=4)
        await until(lambda: worker.health.held == 2 and worker.health.running == 1)
        async with away(server):
            finish.set()
            await until(lambda: not worker.health.registered)
            await asyncio.sleep(1.0)
        async with reaping(store):
            assert await ended(store, finished) == "succeeded"
            assert await ended(store, unstarted) == "succeeded"
        assert worker.health.lives >= 2

    assert await attempts_of(store, finished) == [(1, "succeeded")]
    assert await attempts_of(store, unstarted) == [(1, "succeeded")]


async def test_a_checkpoint_waits_for_the_database(server, url, store):
    started, go_on = asyncio.Event(), asyncio.Event()

    async def work(run: RunContext) -> str:
        started.set()
        await go_on.wait()
        await run.checkpoint({"step": 1})
        run.log.info("saved")
        return "done"

    async with working(url, registry_of(work), lease=timedelta(seconds=30)):
        run_id = await submitted(store, "work")
        await asyncio.wait_for(started.wait(), 20)
        async with away(server):
            go_on.set()
            await asyncio.sleep(0.3)
        assert await ended(store, run_id) == "succeeded"

    assert await attempts_of(store, run_id) == [(1, "succeeded")]


async def test_a_worker_can_be_stopped_while_the_database_is_away(server, url, store):
    async def work() -> None: ...

    async with working(url, registry_of(work), grace_seconds=1.0) as worker:
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: not server.is_running)
        began = time.monotonic()
        worker.stop()
    assert time.monotonic() - began < 15
