"""Counters count each attempt once, whenever it becomes visible, at a cost that follows what is new."""

import asyncio
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import asyncpg
import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from duly.api.metrics.collector import Metrics
from duly.clock import host_now
from duly.domain.limits.pause import EVERYTHING, Scope
from duly.domain.runs.outcome import Failed
from duly.log import Log
from duly.moves.admin.pause import pause_scope, resume_scope
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.connection.local import this_host
from duly.store.reads import installation
from duly.store.reads.tail import Snapshot, Tail
from duly.store.schema import migrate
from duly.store.tables import clocks, workers
from tests.builders import a_dead_run, a_leased_run, a_ready_run, a_scheduler, a_worker, claimed, settled, staged
from tests.clock import START

INSERT = """
insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
                           queue, handler)
select gen_random_uuid(), gen_random_uuid(), $2, $2, $2, $2, 1, 1, 1, 'succeeded', 'succeeded', $3, 'greet'
  from generate_series(1, $1)
"""


async def insert(connection, count, queue="default", at=START):
    await connection.fetch(INSERT, count, at, queue)


def a_metrics(database, every=0):
    return Metrics(database, Log("test"), every=every)


async def scraped(metrics):
    await metrics._look_safely()
    return await text_of(metrics)


async def text_of(metrics):
    return (await metrics.scrape(""))[0].decode()


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


async def test_outcomes_retries_dead_letters_and_start_delay_are_counted_by_queue(own_database, clock):
    metrics = a_metrics(own_database)
    await metrics.look()
    worker_id, run = await a_leased_run(own_database)
    await clock.advance(0.2)
    await settled(own_database, worker_id, run)
    await a_dead_run(own_database, worker_id)
    worker_id, run = await a_leased_run(own_database, worker_id)
    await settled(own_database, worker_id, run, Failed("broken"))

    text = await scraped(metrics)
    assert 'duly_runs_total{queue="default",outcome="succeeded"} 1\n' in text
    assert 'duly_runs_total{queue="default",outcome="failed"} 2\n' in text
    assert 'duly_retries_total{queue="default"} 1\n' in text
    assert 'duly_dead_letters_total{queue="default"} 1\n' in text
    assert "duly_dead_letters_waiting 1\n" in text
    assert 'duly_fire_skew_seconds_bucket{queue="default",le="0.1"} 2\n' in text
    assert 'duly_fire_skew_seconds_bucket{queue="default",le="0.25"} 3\n' in text
    assert 'duly_fire_skew_seconds_count{queue="default"} 3\n' in text


async def test_attempts_are_counted_by_run_when_it_is_over(own_database):
    metrics = a_metrics(own_database)
    await metrics.look()
    await own_database.execute(
        INSERT.replace("1, 1, 1, 'succeeded'", "1, 1, 3, 'succeeded'").replace("$3", "$3::text"), 2, START, "mail"
    )
    await insert(own_database, 5)

    text = await scraped(metrics)
    assert 'duly_run_attempts_bucket{le="1.0"} 5\n' in text
    assert 'duly_run_attempts_bucket{le="2.0"} 5\n' in text
    assert 'duly_run_attempts_bucket{le="3.0"} 7\n' in text
    assert "duly_run_attempts_sum 11\n" in text


async def test_run_that_waited_for_a_slot_is_counted_without_start_delay(own_database, clock):
    metrics = a_metrics(own_database)
    await metrics.look()
    for _ in range(2):
        await a_ready_run(own_database, concurrency=("customer-7", 1))
    await staged(own_database)
    for _ in range(2):
        worker_id = await a_worker(own_database)
        [run] = await claimed(own_database, worker_id)
        await clock.advance(100)
        await settled(own_database, worker_id, run)

    text = await scraped(metrics)
    assert 'duly_runs_total{queue="default",outcome="succeeded"} 2\n' in text
    assert 'duly_fire_skew_seconds_count{queue="default"} 1\n' in text
    assert "duly_run_duration_seconds_count 2\n" in text


async def test_an_outcome_that_was_refused_is_counted_apart(own_database):
    metrics = a_metrics(own_database)
    await metrics.look()
    _, run = await a_leased_run(own_database)
    assert await settled(own_database, await a_worker(own_database), run) == [run]

    assert "duly_fenced_outcomes_total 1\n" in await scraped(metrics)


async def test_every_process_has_the_same_figures_and_one_reads_them(own_database, clock):
    """Counters go on from where any process has left them, and each end is counted once, whoever looks."""
    first, second = a_metrics(own_database, every=5.0), a_metrics(own_database, every=5.0)
    await first.look()
    await insert(own_database, 3, queue="mail")
    await second.look()
    assert 'queue="mail"' not in await text_of(second), "the figures of the first are fresh"

    await clock.advance(6)
    await second.look()
    await first.look()
    for metrics in (first, second):
        assert 'duly_runs_total{queue="mail",outcome="succeeded"} 3\n' in await text_of(metrics)

    await insert(own_database, 4, queue="mail")
    await clock.advance(6)
    third = a_metrics(own_database, every=5.0)
    assert 'duly_runs_total{queue="mail",outcome="succeeded"} 7\n' in await scraped(third), "a process that began late"


async def turns(database):
    return await database.fetchval("select turn from duly.metrics")


@asynccontextmanager
async def a_slow_turn(metrics, database):
    """Keep the turn of a process from ending: another session has locked what it measures."""
    async with database.transaction() as lock:
        await lock.execute("lock table duly.ready in access exclusive mode")
        slow = asyncio.create_task(metrics.look())
        while not await database.fetchval("select count(*) from pg_locks where not granted"):
            await asyncio.sleep(0.01)
        yield
    await slow


async def test_slow_turn_ends_while_others_look_so_shared_figures_go_on(own_database, clock):
    first, second = a_metrics(own_database, every=5.0), a_metrics(own_database, every=5.0)
    await first.look()
    for total in (3, 6):
        await insert(own_database, 3, queue="mail")
        await clock.advance(6)
        async with a_slow_turn(first, own_database):
            for _ in range(8):
                await clock.advance(6)
                await second.look()
        assert (first._seen.age_seconds, await turns(own_database)) == (48, total / 3 * 2), "as old as its turn"
        await second.look()
        assert f'duly_runs_total{{queue="mail",outcome="succeeded"}} {total}\n' in await text_of(second)


async def test_turn_is_handed_on_after_a_minute_without_an_answer_and_counts_nothing_twice(own_database, clock):
    slow, quick = a_metrics(own_database, every=5.0), a_metrics(own_database, every=5.0)
    await slow.look()
    await insert(own_database, 3, queue="mail")
    await clock.advance(6)
    async with a_slow_turn(slow, own_database):
        await clock.advance(61)
        taking_over = asyncio.create_task(quick.look())
        while await own_database.fetchval("select count(*) from pg_locks where not granted") < 2:
            await asyncio.sleep(0.01)
    await taking_over
    await clock.advance(6)
    await slow.look()

    assert await turns(own_database) == 4
    for metrics in (slow, quick):
        await metrics.look()
        assert 'duly_runs_total{queue="mail",outcome="succeeded"} 3\n' in await text_of(metrics)


async def test_turn_that_fails_is_given_back_at_once(own_database, clock):
    failing, other = a_metrics(own_database, every=5.0), a_metrics(own_database, every=5.0)
    await other.look()
    await insert(own_database, 3, queue="mail")
    await clock.advance(6)
    await own_database.execute("alter table duly.ready rename to away")
    with pytest.raises(asyncpg.UndefinedTableError):
        await failing.look()
    await own_database.execute("alter table duly.away rename to ready")

    await other.look()

    assert 'duly_runs_total{queue="mail",outcome="succeeded"} 3\n' in await text_of(other)


async def test_one_turn_counts_for_a_bounded_time_and_the_next_goes_on(own_database, clock, monkeypatch):
    monkeypatch.setattr("duly.store.reads.tail.TRANSACTIONS_MAX", 4)
    monkeypatch.setattr(installation, "COUNTING_SECONDS", 0)
    metrics = a_metrics(own_database)
    await metrics.look()
    for _ in range(10):
        await insert(own_database, 1, queue="mail")

    counted: list[int] = []
    while not counted or counted[-1] < 10:
        await metrics.look()
        counted.append(metrics._seen.figures.counts.queues["mail"].outcomes["succeeded"])
    assert counted == sorted(set(counted))
    assert len(counted) > 2


async def test_lease_expiries_and_shard_grants_are_counted_in_the_database(own_database):
    metrics = a_metrics(own_database)
    await a_scheduler(own_database)
    worker_id = await a_worker(own_database)
    heartbeat = await own_database.fetchval("select heartbeat from duly.workers")
    for _ in range(2):
        await workers.expire(own_database, worker_id, heartbeat, clock_stepped=True)

    text = await scraped(metrics)
    assert "duly_lease_expiries_total 1\n" in text
    assert "duly_shard_grants_total 64\n" in text
    assert ("duly_schedulers 1\n" in text, "duly_shards_held 64\n" in text) == (True, True)


async def test_oldest_run_counts_however_many_are_before_it_in_the_table(own_database, clock, monkeypatch):
    monkeypatch.setattr(installation, "COUNTED_MAX", 10)
    await a_ready_run(own_database, queue="zeta")
    await clock.advance(100)
    for _ in range(12):
        await a_ready_run(own_database, queue="mail")
    await own_database.execute("update duly.ready set is_unroutable = is_unroutable where queue = 'zeta'")

    assert 'duly_queue_oldest_age_seconds{queue="zeta",lane="live"} 100.0\n' in await scraped(a_metrics(own_database))


async def test_depth_and_age_are_those_of_a_lane(own_database, clock):
    await a_ready_run(own_database, queue="mail")
    await clock.advance(30)
    await a_ready_run(own_database, queue="mail", priority=5)
    await own_database.execute("update duly.ready set priority = 105 where due_at < duly.clock_now() - interval '10 s'")

    text = await scraped(a_metrics(own_database))
    for lane, age in (("live", 0.0), ("backfill", 30.0)):
        assert f'duly_queue_depth{{queue="mail",lane="{lane}"}} 1\n' in text
        assert f'duly_queue_oldest_age_seconds{{queue="mail",lane="{lane}"}} {age}\n' in text


async def test_database_health_shows_what_holds_vacuum_back(own_database):
    async with own_database.transaction() as transaction:
        await transaction.execute("select pg_current_xact_id()")
        for _ in range(5):
            await own_database.execute("select pg_current_xact_id()")
        ages = {
            one.labels["holder"]: one.value
            for family in parse_text(await scraped(a_metrics(own_database)))
            if family.name == "duly_database_xmin_age_transactions"
            for one in family.samples
        }
    assert set(ages) == {"transaction", "prepared", "slot", "replica"}
    assert ages["transaction"] >= 5


async def test_queues_show_their_depth_and_age_and_do_not_vanish_when_empty(metrics, database, clock):
    await metrics.look()
    await insert(database, 1, queue="mail")
    await a_ready_run(database, queue="mail")
    await clock.advance(30)
    assert 'duly_queue_oldest_age_seconds{queue="mail",lane="live"} 30.0' in await scraped(metrics)

    await database.execute("delete from duly.ready")
    assert 'duly_queue_depth{queue="mail",lane="live"} 0\n' in await scraped(metrics)


async def test_pauses_are_counted_by_scope_without_names(metrics, database):
    for scope in (EVERYTHING, Scope(queue="mail"), Scope(7), Scope(8), Scope(8, "mail")):
        await pause_scope(database, scope, reason="stop", paused_by="a person")

    text = (await metrics.scrape(""))[0].decode()
    lines = [line for line in text.splitlines() if line.startswith("duly_pauses{")]
    assert lines == [
        'duly_pauses{scope="everything"} 1',
        'duly_pauses{scope="queue"} 1',
        'duly_pauses{scope="tenant"} 2',
        'duly_pauses{scope="queue_of_tenant"} 1',
    ]

    await resume_scope(database, EVERYTHING)
    assert 'duly_pauses{scope="everything"} 0' in (await metrics.scrape(""))[0].decode()


async def test_scrape_without_a_database_has_the_last_figures_and_their_age(database_url, clock):
    database = await Database(database_url, clock=clock).open()
    metrics = a_metrics(database)
    assert "duly_database_up 1\n" in await scraped(metrics)
    await database.close()
    await clock.advance(40)

    text = await scraped(metrics)
    assert "duly_database_up 0\n" in text
    assert "duly_staging_lag_seconds 0.0\n" in text
    assert "duly_figures_age_seconds 40.0\n" in text


async def test_read_only_database_is_not_up(database_url, clock):
    async with Database(database_url, size_max=1, clock=clock) as database:
        metrics = a_metrics(database, every=5.0)
        assert "duly_database_up 1\n" in await text_of(metrics)
        await database.execute("set default_transaction_read_only = on")
        await clock.advance(6)
        assert "duly_database_up 0\n" in await text_of(metrics)


async def test_each_role_tells_how_far_the_clock_of_its_host_is(own_database):
    """Of several processes of a role on a host the one that is furthest away counts."""
    metrics = a_metrics(own_database)
    await clocks.record(own_database, ["worker"], "one:1")
    await clocks.record(own_database, ["worker"], "one:2", lambda: host_now() - timedelta(hours=1))
    await own_database.execute("update duly.clock_high_water set at = duly.clock_now() + interval '90 seconds'")

    text = (await metrics.scrape("text/plain"))[0].decode()

    [offset] = [line for line in text.splitlines() if line.startswith("duly_clock_offset_seconds{")]
    assert offset.startswith(f'duly_clock_offset_seconds{{role="worker",host="{this_host()}"}} -')
    assert float(offset.split()[-1]) == pytest.approx(-3600, abs=2)
    [back] = [line for line in text.splitlines() if line.startswith("duly_database_clock_set_back_seconds ")]
    assert float(back.split()[-1]) == pytest.approx(90, abs=5)
