"""Pressure on queues: their throughput, the runs due in the next minutes, and the workers that they need."""

from datetime import timedelta
from operator import itemgetter

import msgspec
import pytest

from duly.domain.limits.scaling import FUNCTIONS
from duly.domain.runs.outcome import Succeeded
from duly.moves.settle import Settled, settle
from duly.store.reads.pressure import Gauge, throughputs, upcoming
from duly.store.reads.tail import growing
from duly.store.tables import workers
from duly.store.tables.workers import Identity
from tests.builders import RNG, a_ready_run, a_waiting_run, a_worker, an_active_schedule, claimed, seconds, staged
from tests.clock import START
from tests.schedules.stories import a_cron

MINUTE = timedelta(minutes=1)


@pytest.fixture(autouse=True)
async def no_dead_rows(database):
    """History is read from its last blocks, and other tests leave blocks of dead rows behind."""
    await database.execute("truncate duly.attempts")


async def work_off(database, clock, worker_id, elapsed: float) -> None:
    """Let a worker do all there is, each run for so long."""
    runs = await claimed(database, worker_id, limit=1_000)
    done = [Settled(run, clock.at - seconds(elapsed), clock.at, Succeeded()) for run in runs]
    assert await settle(database, worker_id, done, RNG) == []


async def test_the_pace_of_a_queue_is_that_of_the_last_minutes(database, clock):
    worker_id = await a_worker(database, lease=timedelta(days=1))
    for _ in range(9):
        await a_ready_run(database)
    await work_off(database, clock, worker_id, elapsed=100)
    await clock.advance(200)
    for _ in range(90):
        await a_ready_run(database)
    await work_off(database, clock, worker_id, elapsed=2)

    found = await throughputs(database)

    assert set(found) == {"default"}
    assert found["default"].per_second == 0.5
    assert found["default"].mean_seconds == 2


async def test_throughput_of_a_partly_read_history_covers_only_the_time_read(database, clock, monkeypatch):
    """Of a part of history that is too large to be read whole, only the time counts that was read."""
    monkeypatch.setattr("duly.store.reads.pressure._BLOCKS_MAX", 1)
    worker_id = await a_worker(database, lease=timedelta(days=1))
    for _ in range(300):
        await a_ready_run(database)
    await work_off(database, clock, worker_id, elapsed=1)
    await clock.advance(100)
    for _ in range(300):
        await a_ready_run(database)
    await work_off(database, clock, worker_id, elapsed=1)

    await clock.advance(10)
    found = (await throughputs(database))["default"]

    leaf, blocks = max(await growing(database), key=itemgetter(1))
    read = await database.fetchval(f"select count(*) from {leaf} where ctid >= $1", (blocks - 1, 0))
    assert 0 < read < 300
    assert found.per_second == read / 10


async def test_without_history_there_is_no_pace(database):
    assert await throughputs(database) == {}


async def test_upcoming_runs_are_counted_in_every_minute_they_fire_in(database, clock):
    await a_cron(database, "*/5 * * * *", queue="cron")
    await a_cron(database, "*/5 * * * *", queue="cron")
    await an_active_schedule(database, every=30, queue="often", anchor=START + 2 * MINUTE)
    await a_waiting_run(database, delay=610, queue="once")
    await a_waiting_run(database, delay=1_200, queue="never")
    await clock.advance(1)
    await staged(database)

    found = await upcoming(database)

    assert {queue: {n: c for n, c in enumerate(one.minutes) if c} for queue, one in found.items()} == {
        "cron": {4: 2, 9: 2, 14: 2},
        "often": dict.fromkeys(range(1, 15), 2),
        "once": {10: 1},
    }


async def test_pressure_requests_workers_before_a_known_peak(database, clock):
    """A job of ten in ten minutes: each takes a minute, and a worker has one slot."""
    gauge = Gauge(database)
    worker_id = await a_worker(database, lease=timedelta(days=1))
    await database.execute("update duly.workers set slots = 1")
    await a_ready_run(database)
    await work_off(database, clock, worker_id, elapsed=60)
    assert (await gauge.read()).desired_workers("default") == 1
    for _ in range(10):
        await a_waiting_run(database, delay=600)

    await clock.advance(20)
    found = await gauge.read()

    assert found.upcoming("default")[9] == 10
    assert found.desired_workers("default") == 12, "ten, and a fifth to spare"
    assert found.desired_workers("nobody's") == 0


async def test_slots_are_counted_for_the_handlers_that_the_queue_runs(database, clock):
    identity = Identity(RNG.uuid(), "worker", "0", ["default"], ["greet", "@webhook"], 505, timedelta(days=1))
    identity = msgspec.structs.replace(identity, pools={FUNCTIONS: 5, "@webhook": 500})
    await workers.register(database, identity)
    for _ in range(60):
        await a_ready_run(database)
    await work_off(database, clock, identity.worker_id, elapsed=30)
    gauge = Gauge(database)

    found = (await gauge.read()).loads["default"]
    assert (found.slots, found.slots_per_worker) == (5, 5)
    assert (await gauge.read()).desired_workers("default") == 3, "10 busy slots, and a fifth to spare"

    await database.execute("update duly.attempts set handler = '@webhook'")
    found = (await gauge.read()).loads["default"]
    assert found.slots == 500
