"""Committed, and the answer lost: nothing is made twice, nothing is recorded twice, nothing runs twice."""

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from duly.clock import Rng
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.runs.options import options_of
from duly.domain.runs.retry import Retry
from duly.domain.triggers.schedule.timing import every_shape
from duly.log import Log
from duly.moves.submit import submit, submit_many, submit_recurring
from duly.scheduler.service import Scheduler
from duly.store.boxes import history
from duly.store.connection.database import Database, Unavailable
from duly.worker.context import RunContext
from duly.worker.handlers import Handler, Registry
from duly.worker.service import Worker, WorkerOptions
from tests.end_to_end.proxy import a_proxy

SHARE = 0.3
RUNS = 60
OPTIONS = options_of(retry=Retry(max_attempts=3, base_seconds=0.01))
JOB = Submission("work", "{}", "default", 5, None, None, OPTIONS)


@pytest.fixture
async def unsteady(url, tmp_path):
    """The address of a database whose answers may be lost, and what decides which."""
    async with a_proxy(url, tmp_path) as (address, proxy):
        yield address, proxy


async def until_answered(ask):
    """Ask again, as every client must, until there is an answer."""
    for _ in range(100):
        try:
            return await ask()
        except Unavailable:
            continue
    raise AssertionError("no answer")


async def until(condition, seconds: float = 40.0) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.05)


@asynccontextmanager
async def working(url: str, registry: Registry):
    options = WorkerOptions("worker", slots=20, lease=timedelta(seconds=30))
    worker = Worker(url, registry, options, rng=Rng(), log=Log("worker"))
    living = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(living, 30)


def a_registry(calls: Counter) -> Registry:
    async def work(run: RunContext) -> None:
        calls[run.id, run.attempt] += 1
        if run.attempt == 1 and run.id.int % 3 == 0:
            raise ValueError("broken")

    registry = Registry()
    registry.add(Handler(work))
    return registry


async def test_creation_with_lost_replies_creates_each_job_exactly_once(unsteady, store):
    address, proxy = unsteady
    proxy.lose(SHARE, "submit")
    async with Database(address) as database:
        one_by_one = [
            await until_answered(lambda: submit(database, JOB, key=f"one-{number}"))  # noqa: B023
            for number in range(RUNS)
        ]
        in_batches = [
            await until_answered(lambda: submit_many(database, [JOB] * 5, key=f"many-{number}"))  # noqa: B023
            for number in range(RUNS // 5)
        ]
        schedule = Recurring("work", "{}", "default", 5, every_shape(60))
        schedules = [
            await until_answered(lambda: submit_recurring(database, schedule, key=f"schedule-{number}"))  # noqa: B023
            for number in range(20)
        ]

    assert proxy.lost > RUNS * SHARE / 3
    told = {answer.job_id for answer in one_by_one} | {answer.job_id for batch in in_batches for answer in batch}
    assert len(told) == 2 * RUNS
    assert {row[0] for row in await store.fetch("select run_id from duly.ready")} == told
    assert {row[0] for row in await store.fetch("select job_id from duly.jobs")} == {one.job_id for one in schedules}
    assert await store.fetchval("select count(*) from duly.timers") == 20


async def all_ended(store: Database) -> bool:
    return not await store.fetchval("select exists (select from duly.live_runs)")


async def test_settlement_with_lost_replies_records_and_moves_each_run_exactly_once(unsteady, store):
    address, proxy = unsteady
    calls: Counter = Counter()
    run_ids = {answer.job_id for answer in await submit_many(store, [JOB] * RUNS, key="all")}
    proxy.lose(SHARE, "duly.finish(", "duly.settle(", "already_settled", "record_fenced")
    async with working(address, a_registry(calls)) as worker:
        await until(lambda: all_ended(store))
        assert (worker.health.fenced, worker.health.lives) == (0, 1)

    assert proxy.lost > 0
    await _each_once(store, run_ids, calls)


async def test_claim_with_lost_replies_returns_runs_and_each_executes_exactly_once(unsteady, store):
    address, proxy = unsteady
    calls: Counter = Counter()
    run_ids = {answer.job_id for answer in await submit_many(store, [JOB] * RUNS, key="all")}
    proxy.lose(SHARE, "duly.claim(", "duly.hand_back(")
    async with working(address, a_registry(calls)) as worker:
        await until(lambda: all_ended(store))
        assert (worker.health.fenced, worker.health.lives) == (0, 1)

    assert proxy.lost > 0
    await _each_once(store, run_ids, calls)


async def _each_once(store: Database, run_ids, calls: Counter) -> None:
    """One call for each attempt, one outcome for each attempt, one end for each run."""
    attempts = {(run_id, 1) for run_id in run_ids} | {(run_id, 2) for run_id in run_ids if run_id.int % 3 == 0}
    assert calls == dict.fromkeys(attempts, 1)
    rows = await store.fetch("select run_id, attempt, outcome::text, became::text from duly.attempts")
    assert Counter((row["run_id"], row["attempt"]) for row in rows) == dict.fromkeys(attempts, 1)
    assert Counter(row["run_id"] for row in rows if row["became"] == "succeeded") == dict.fromkeys(run_ids, 1)
    assert await history.verify(store) == []


async def test_staging_with_lost_replies_fires_each_occurrence_exactly_once(unsteady, store):
    address, proxy = unsteady
    schedule = Recurring("work", "{}", "default", 5, every_shape(1) | {"overlap": {"policy": "allow"}})
    jobs = [await submit_recurring(store, schedule, key=f"schedule-{number}") for number in range(10)]
    proxy.lose(SHARE, "duly.stage(", "duly.lease_shards(")

    async def staged_so_far() -> bool:
        return bool(await store.fetchval("select count(*) >= 10 * 8 from duly.ready"))

    async with Database(address) as database:
        scheduler = Scheduler(database, name="scheduler", rng=Rng(), log=Log("scheduler"))
        living = asyncio.create_task(scheduler.run())
        await until(staged_so_far)
        scheduler.stop()
        await asyncio.wait_for(living, 20)

    assert proxy.lost > 0
    for job in jobs:
        rows = await store.fetch("select scheduled_at from duly.ready where job_id = $1 order by 1", job.job_id)
        moments = [row[0] for row in rows]
        assert moments == [job.scheduled_at + timedelta(seconds=number) for number in range(len(moments))]
        next_fire = await store.fetchval("select scheduled_at from duly.timers where job_id = $1", job.job_id)
        assert next_fire == moments[-1] + timedelta(seconds=1)
