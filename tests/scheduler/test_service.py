"""The scheduler's loop: renew, stage, sleep until there is more; survive what the database does."""

import asyncio

import asyncpg
import pytest

from duly.clock import Rng, SystemClock
from duly.log import Log
from duly.scheduler import service
from duly.scheduler.service import LEASE, RENEW_SECONDS, TICK_SECONDS, Scheduler
from duly.store.connection import hints
from duly.store.connection.database import Database, Unavailable
from duly.store.tables import shards
from tests.builders import a_waiting_run, an_active_schedule, boxes_of, counts, seconds
from tests.clock import START


@pytest.fixture
def scheduler(database) -> Scheduler:
    """One that holds nothing yet."""
    return Scheduler(database, name="first", rng=Rng(1), log=Log("test"))


async def test_scheduler_step_stages_runs_due_within_the_horizon(database, clock, scheduler):
    run_id = await a_waiting_run(database, delay=60)
    await scheduler.renew()
    await clock.advance(1)
    assert (await scheduler.step()).count == 0
    await clock.advance(54)
    await scheduler.renew()

    assert (await scheduler.step()).count == 1

    assert await boxes_of(database, run_id) == ["ready"]
    assert (scheduler.health.staged, scheduler.health.shards) == (1, 64)


async def test_without_a_shard_there_is_nothing_to_stage(scheduler):
    assert await scheduler.step() is None
    assert await scheduler._step_safely() == TICK_SECONDS


async def test_an_idle_scheduler_sleeps_until_the_nearest_due_but_no_longer_than_a_tick(database, clock, scheduler):
    await scheduler.renew()
    assert await scheduler._step_safely() == TICK_SECONDS
    await a_waiting_run(database, delay=60)
    assert await scheduler._step_safely() == TICK_SECONDS
    await clock.advance(54.7)
    await scheduler.renew()

    assert await scheduler._step_safely() == pytest.approx(0.3)


async def test_a_full_batch_is_followed_by_the_next_at_once(database, clock, scheduler, monkeypatch):
    monkeypatch.setattr(service, "BATCH_MAX", 4)
    for _ in range(2):
        await a_waiting_run(database, delay=6)
    await scheduler.renew()
    await clock.advance(1)

    assert await scheduler._step_safely() == 0.0


async def test_scheduler_health_reports_the_lag_in_seconds(database, clock, scheduler):
    await an_active_schedule(database, every=1, anchor=START)
    await clock.advance(30)
    await scheduler.renew()

    await scheduler.step()

    assert scheduler.health.lag_seconds == 29


async def test_after_an_error_it_believes_to_hold_nothing(scheduler, monkeypatch):
    async def broken(*_, **__):
        raise Unavailable("gone")

    await scheduler.renew()
    monkeypatch.setattr(shards, "lease", broken)

    with pytest.raises(Unavailable):
        await scheduler.renew()

    assert scheduler.health.shards == 0
    assert await scheduler.step() is None


@pytest.mark.parametrize("error", [Unavailable("gone"), asyncpg.UniqueViolationError("broken row")])
async def test_a_stage_that_fails_is_tried_again_soon(scheduler, monkeypatch, error):
    async def broken(*_, **__):
        raise error

    await scheduler.renew()
    monkeypatch.setattr(service, "look", broken)

    assert await scheduler._step_safely() == RENEW_SECONDS


async def test_failing_backfills_are_reported_while_staging_continues(clock, scheduler, monkeypatch):
    async def broken(*_, **__):
        raise Unavailable("gone")

    scheduler.rounds.begin("backfills", clock.monotonic())
    await scheduler.renew()
    await clock.advance(1)
    await scheduler._step_safely()
    assert scheduler.rounds.ages(clock.monotonic()) == {"backfills": 0}

    monkeypatch.setattr(service, "go_on", broken)
    await clock.advance(1)
    await scheduler.renew()
    await scheduler._step_safely()

    assert scheduler.health.stepped_at == clock.monotonic()
    assert scheduler.rounds.ages(clock.monotonic()) == {"backfills": 1}


async def test_two_schedulers_fire_each_occurrence_once(database, clock, scheduler):
    second = Scheduler(database, name="second", rng=Rng(2), log=Log("test"))
    for number in range(20):
        await an_active_schedule(database, every=10, anchor=START + seconds(number % 10))
    for _ in range(100):
        await asyncio.gather(scheduler.renew(), second.renew())
        await asyncio.gather(scheduler.step(), second.step())
        await clock.advance(0.5)
    for _ in range(3):
        await asyncio.gather(scheduler.renew(), second.renew())
        await asyncio.gather(scheduler.step(), second.step())

    fired = await database.fetch("select job_id, scheduled_at, count(*) from duly.ready group by 1, 2")
    assert {number for _, _, number in fired} == {1}
    assert len(fired) == sum(1 for number in range(20) for moment in range(number % 10, 56, 10))
    assert (scheduler.health.shards, second.health.shards) == (32, 32)


async def test_new_shard_holder_continues_from_the_timers_and_loses_no_occurrence(database, clock, scheduler):
    await an_active_schedule(database, every=1, anchor=START)
    await scheduler.renew()
    for _ in range(3):
        await scheduler.step()
    await clock.advance(LEASE + seconds(1))
    successor = Scheduler(database, name="second", rng=Rng(2), log=Log("test"))
    await successor.renew()
    for _ in range(20):
        await successor.step()

    moments = [row[0] for row in await database.fetch("select scheduled_at from duly.ready order by 1")]

    assert moments == [START + seconds(number) for number in range(9)]


async def test_scheduler_loop_stages_runs_and_releases_its_shards_when_stopped(database, clock, scheduler):
    run_id = await a_waiting_run(database, delay=6)
    running = asyncio.create_task(scheduler.run())
    await clock.advance(1)
    for _ in range(2000):
        if await boxes_of(database, run_id) == ["ready"]:
            break
        await asyncio.sleep(0.001)

    scheduler.stop()
    await asyncio.wait_for(running, 20)

    assert await counts(database) == {"ready": 1}
    assert await database.fetchval("select count(*) from duly.shards where holder is not null") == 0
    assert await database.fetchval("select count(*) from duly.schedulers") == 0


async def test_a_hint_is_followed_by_a_look_at_once_and_by_a_hint_to_the_workers(database_url, monkeypatch):
    monkeypatch.setattr(service, "TICK_SECONDS", 60.0)
    async with Database(database_url, clock=SystemClock()) as database:
        scheduler = Scheduler(database, name="first", rng=Rng(1), log=Log("test"))
        woken = asyncio.Event()
        listening = asyncio.create_task(
            hints.listen(database, {hints.READY_CHANNEL: lambda _: woken.set()}, lambda: False)
        )
        running = asyncio.create_task(scheduler.run())
        async with asyncio.timeout(20):
            while not scheduler.health.stepped_at or await listeners(database) < 2:
                await asyncio.sleep(0.01)
            job = await an_active_schedule(database, every=60, anchor=START)
            await asyncio.sleep(0)
            assert await boxes_of_job(database, job.job_id) == ["timers"]
            began = database.clock.monotonic()

            await hints.send(database, [hints.DUE])

            await woken.wait()
            assert await boxes_of_job(database, job.job_id) == ["ready", "timers"]
            assert database.clock.monotonic() - began < 5
            scheduler.stop()
            listening.cancel()
            await asyncio.wait({running, listening})


async def listeners(database):
    """Count who listens, of those connected to this database."""
    return await database.fetchval(
        "select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen %'"
    )


async def boxes_of_job(database, job_id):
    """Name the boxes in which something of a job stands."""
    box = "select '{0}' as box from duly.{0} where job_id = $1"
    rows = await database.fetch(" union all ".join(box.format(name) for name in ("ready", "timers")), job_id)
    return sorted(row["box"] for row in rows)


async def test_identity_is_random_for_each_start(database):
    one, other = (Scheduler(database, name="same", rng=Rng(), log=Log("test")) for _ in range(2))

    assert one.scheduler_id != other.scheduler_id
