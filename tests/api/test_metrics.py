"""Counters count each attempt once, whenever it becomes visible, at a cost that follows what is new."""

from contextlib import suppress
from datetime import timedelta

import pytest

from duly.api.metrics.collector import Histogram, Metrics
from duly.clock import host_now
from duly.domain.limits.pause import EVERYTHING, Scope
from duly.domain.runs.outcome import Failed
from duly.log import Log
from duly.moves.admin.pause import pause_scope, resume_scope
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.connection.local import this_host
from duly.store.reads.tail import Snapshot, Tail
from duly.store.schema import migrate
from duly.store.tables import clocks
from tests.api.conftest import parts_of
from tests.builders import a_dead_run, a_leased_run, a_ready_run, a_worker, claimed, settled, staged
from tests.clock import START

INSERT = """
insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
                           queue, handler)
select gen_random_uuid(), gen_random_uuid(), $2, $2, $2, $2, 1, 1, 1, 'succeeded', 'succeeded', $3, 'greet'
  from generate_series(1, $1)
"""


async def insert(connection, count, queue="default", at=START):
    await connection.fetch(INSERT, count, at, queue)


async def counted(tail):
    return sum(ended.runs for ended in await tail.look())


async def test_runs_before_the_first_poll_are_not_counted(own_database):
    await insert(own_database, 5)
    tail = Tail(own_database)

    assert [await counted(tail) for _ in range(2)] == [0, 0]


async def test_each_attempt_is_counted_once(own_database):
    tail = Tail(own_database)
    await tail.look()
    for count in (1, 0, 250, 3):
        await insert(own_database, count)
        assert await counted(tail) == count


async def test_a_transaction_that_was_open_during_a_look_is_counted_when_it_commits(own_database):
    tail = Tail(own_database)
    await tail.look()
    async with own_database.transaction() as slow:
        await insert(slow, 7)
        await insert(own_database, 2_000)
        assert await counted(tail) == 2_000
        assert await counted(tail) == 0
    assert await counted(tail) == 7
    assert await counted(tail) == 0


async def test_a_transaction_that_rolls_back_is_not_counted(own_database):
    tail = Tail(own_database)
    await tail.look()
    with suppress(RuntimeError):
        async with own_database.transaction() as lost:
            await insert(lost, 7)
            raise RuntimeError
    await insert(own_database, 1)

    assert await counted(tail) == 1


async def test_partition_created_later_is_read_from_its_beginning(own_database):
    tail = Tail(own_database)
    await tail.look()
    await history.create_partitions(own_database, 4)
    await insert(own_database, 4, at=START + timedelta(days=1))

    assert await counted(tail) == 4


async def test_metrics_count_on_the_oldest_supported_postgresql(postgres_15):
    name = postgres_15.create()
    async with Database(postgres_15.url(name)) as database:
        await migrate.migrate(database)
        tail = Tail(database)
        await tail.look()
        await insert(database, 9, at=await database.read_clock())
        assert [await counted(tail) for _ in range(2)] == [9, 0]


def test_snapshot_converts_open_transactions_to_distances():
    assert Snapshot.parse("10:10:") == Snapshot(10, 10, ())
    assert Snapshot.parse("4294967300:4294967305:4294967300,4294967303").arguments() == (9, -5, [-5, -2])


async def test_outcomes_dead_letters_and_lateness_are_counted_by_queue(own_database, clock):
    metrics = Metrics(parts_of(own_database).vitals, Log("metrics"))
    await metrics.look()
    worker_id, run = await a_leased_run(own_database)
    await clock.advance(0.2)
    await settled(own_database, worker_id, run)
    await a_dead_run(own_database, worker_id)
    worker_id, run = await a_leased_run(own_database, worker_id)
    await settled(own_database, worker_id, run, Failed("broken"))
    await metrics.look()

    text = (await metrics.scrape(""))[0].decode()
    assert 'duly_runs_total{outcome="succeeded",queue="default"} 1.0' in text
    assert 'duly_runs_total{outcome="failed",queue="default"} 2.0' in text
    assert "duly_dead_letters_total 1.0" in text
    assert 'duly_fire_skew_seconds_bucket{le="0.1"} 2.0' in text
    assert 'duly_fire_skew_seconds_bucket{le="0.25"} 3.0' in text
    assert "duly_fire_skew_seconds_count 3.0" in text


async def test_run_that_waited_for_a_slot_is_counted_without_start_delay(own_database, clock):
    metrics = Metrics(parts_of(own_database).vitals, Log("metrics"))
    await metrics.look()
    for _ in range(2):
        await a_ready_run(own_database, concurrency=("customer-7", 1))
    await staged(own_database)
    for _ in range(2):
        worker_id = await a_worker(own_database)
        [run] = await claimed(own_database, worker_id)
        await clock.advance(100)
        await settled(own_database, worker_id, run)
    await metrics.look()

    text = (await metrics.scrape(""))[0].decode()
    assert 'duly_runs_total{outcome="succeeded",queue="default"} 2.0' in text
    assert "duly_fire_skew_seconds_count 1.0" in text
    assert "duly_run_duration_seconds_count 2.0" in text


async def test_an_outcome_that_was_refused_is_counted_apart(own_database):
    metrics = Metrics(parts_of(own_database).vitals, Log("metrics"))
    await metrics.look()
    _, run = await a_leased_run(own_database)
    assert await settled(own_database, await a_worker(own_database), run) == [run]

    assert "duly_fenced_outcomes_total 1.0" in (await metrics.scrape(""))[0].decode()


async def test_queues_show_their_depth_and_age_and_do_not_vanish_when_empty(parts, metrics, database, clock):
    await a_ready_run(database, queue="mail")
    await clock.advance(30)
    assert 'duly_queue_oldest_age_seconds{queue="mail"} 30.0' in (await metrics.scrape(""))[0].decode()

    await database.execute("delete from duly.ready")
    assert 'duly_queue_depth{queue="mail"} 0.0' in (await metrics.scrape(""))[0].decode()


async def test_pauses_are_counted_by_scope_without_names(metrics, database):
    for scope in (EVERYTHING, Scope(queue="mail"), Scope(7), Scope(8), Scope(8, "mail")):
        await pause_scope(database, scope, reason="stop", paused_by="a person")

    text = (await metrics.scrape(""))[0].decode()
    lines = [line for line in text.splitlines() if line.startswith("duly_pauses{")]
    assert lines == [
        'duly_pauses{scope="everything"} 1.0',
        'duly_pauses{scope="queue"} 1.0',
        'duly_pauses{scope="tenant"} 2.0',
        'duly_pauses{scope="queue_of_tenant"} 1.0',
    ]

    await resume_scope(database, EVERYTHING)
    assert 'duly_pauses{scope="everything"} 0.0' in (await metrics.scrape(""))[0].decode()


async def test_metrics_keep_their_last_values_without_a_database(database_url):
    database = await Database(database_url).open()
    parts = parts_of(database)
    metrics = Metrics(parts.vitals, Log("metrics"))
    parts.reaper.reaped = 2
    await database.close()

    assert "duly_lease_expiries_total 2.0" in (await metrics.scrape(""))[0].decode()


def test_a_histogram_cumulates():
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)

    samples = {sample.labels.get("le", sample.name): sample.value for sample in histogram.family("x", "").samples}
    assert samples == {"1.0": 2, "2.0": 3, "+Inf": 4, "x_count": 4, "x_sum": 12.0}


async def test_each_role_tells_how_far_the_clock_of_its_host_is(own_database):
    """Of several processes of a role on a host the one that is furthest away counts."""
    metrics = Metrics(parts_of(own_database).vitals, Log("test"))
    await clocks.record(own_database, ["worker"], "one:1")
    await clocks.record(own_database, ["worker"], "one:2", lambda: host_now() - timedelta(hours=1))
    await own_database.execute("update duly.clock_high_water set at = duly.clock_now() + interval '90 seconds'")

    text = (await metrics.scrape("text/plain"))[0].decode()

    [offset] = [line for line in text.splitlines() if line.startswith("duly_clock_offset_seconds{")]
    assert offset.startswith(f'duly_clock_offset_seconds{{host="{this_host()}",role="worker"}} -')
    assert float(offset.split()[-1]) == pytest.approx(-3600, abs=2)
    [back] = [line for line in text.splitlines() if line.startswith("duly_database_clock_set_back_seconds ")]
    assert float(back.split()[-1]) == pytest.approx(90, abs=5)
