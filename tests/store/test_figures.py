"""Roll-ups: each end is counted once, in the minute it belongs to, whoever folds and whatever dies in between."""

import asyncio
import json
from datetime import timedelta

from duly.domain.diagnosis.figures import BOUNDS
from duly.domain.runs.outcome import Failed, Succeeded, WaitForDestination
from duly.maintenance.service import ROLLUPS_KEPT
from duly.moves.defer import Deferred, defer
from duly.moves.settle import Settled, settle
from duly.store.reads import figures
from duly.store.retention import Aging, forget_older
from tests.builders import (
    QUEUE,
    RNG,
    a_leased_run,
    a_ready_run,
    a_retrying_run,
    a_waiting_run,
    a_worker,
    an_active_schedule,
    claimed,
    seconds,
    settled,
    staged,
)
from tests.clock import START

MINUTE = timedelta(minutes=1)
ORIGIN = "https://hooks.example"


async def ended(database, outcome=None, queue=QUEUE):
    """Let a run end now."""
    worker_id = await a_worker(database, queues=[queue])
    await a_ready_run(database, queue=queue)
    [run] = await claimed(database, worker_id, queues=[queue])
    await settled(database, worker_id, run, outcome)


async def counts(database, grain="minute", queue=""):
    columns = "at, started, succeeded, failed, retried, dead"
    statement = f"select {columns} from duly.rollups where grain = $1 and queue = $2 order by at"
    return [tuple(row) for row in await database.fetch(statement, grain, queue)]


async def test_the_database_and_we_know_the_same_bounds(database):
    found = [await database.fetchval("select duly.bucket_of($1)", bound) for bound in BOUNDS]

    assert found == list(range(1, len(BOUNDS) + 1))
    assert await database.fetchval("select duly.bucket_of(0)") == 0


async def test_an_end_is_counted_in_its_minute_its_hour_its_queue_and_in_all(database):
    await ended(database, queue="mail")
    await ended(database, Failed("no", retryable=False), queue="slow")

    assert await figures.fold(database, 100) == 2

    assert await counts(database) == [(START, 2, 1, 1, 0, 1)]
    assert await counts(database, "hour") == [(START.replace(minute=0), 2, 1, 1, 0, 1)]
    assert await counts(database, queue="mail") == [(START, 1, 1, 0, 0, 0)]


async def test_retried_attempts_are_counted_separately(database):
    await a_retrying_run(database)
    await figures.fold(database, 100)

    assert await counts(database) == [(START, 1, 0, 1, 1, 0)]


async def test_end_folded_afterwards_is_added_to_its_own_minute(database, clock):
    await ended(database)
    await figures.fold(database, 100)
    worker_id, run = await a_leased_run(database)
    began = await database.read_clock()
    await clock.advance(timedelta(seconds=14))
    await settle(database, worker_id, [Settled(run, began, began, Succeeded())], rng=RNG)
    await figures.fold(database, 100)

    assert await counts(database) == [(START, 2, 2, 0, 0, 0)]


async def test_a_fold_that_is_rolled_back_has_counted_nothing(database):
    await ended(database)

    class Died(Exception):
        pass

    try:
        async with database.transaction() as connection:
            await connection.fetch(figures.SQL["fold"], 100)
            raise Died
    except Died:
        pass

    assert await counts(database) == []
    assert await figures.fold(database, 100) == 1
    assert await counts(database) == [(START, 1, 1, 0, 0, 0)]


async def test_while_somebody_folds_others_leave_it_to_them(database):
    await ended(database)
    async with database.transaction() as connection:
        await connection.fetch(figures.SQL["fold"], 100)
        assert await figures.fold(database, 100) == 0

    assert await figures.fold(database, 100) == 0
    assert await counts(database) == [(START, 1, 1, 0, 0, 0)]


async def test_concurrent_folds_count_each_end_once(database):
    for _ in range(20):
        await ended(database)
    for _ in range(5):
        await asyncio.gather(*(figures.fold(database, 3) for _ in range(4)))
    while await figures.fold(database, 3):
        pass

    assert await counts(database) == [(START, 20, 20, 0, 0, 0)]
    assert await database.fetchval("select count(*) from duly.tallies") == 0


async def test_histograms_hold_how_late_and_how_long(database, clock):
    worker_id, run = await a_leased_run(database)
    began = run.due_at + timedelta(seconds=0.3)
    await clock.advance(timedelta(seconds=4))
    await settle(database, worker_id, [Settled(run, began, began + timedelta(seconds=3), Succeeded())], rng=RNG)
    await figures.fold(database, 100)
    [step] = await figures.series(database, 1, START, START + MINUTE, MINUTE, None, "minute")

    assert [number for number, count in enumerate(step.skew) if count] == [BOUNDS.index(0.2) + 1]
    assert [number for number, count in enumerate(step.duration) if count] == [BOUNDS.index(2.0) + 1]


class TestBlockedAttempts:
    """It is counted, and how long it took; how late it began is not."""

    async def lateness(self, database):
        """Fold, and give how many attempts began, how many of them say how late, and how many how long."""
        await figures.fold(database, 100)
        steps = await figures.series(database, 1, START, START + 60 * MINUTE, MINUTE, None, "minute")
        return [
            sum(parts)
            for parts in zip(*((one.started, sum(one.skew), sum(one.duration)) for one in steps), strict=True)
        ]

    async def test_for_its_receiver(self, database, clock):
        worker_id, run = await a_leased_run(database)
        await database.execute("update duly.leased set options = '{}'")
        await defer(database, worker_id, [Deferred(run, None, WaitForDestination(ORIGIN))])
        await clock.advance(seconds(300))
        await database.execute("select duly.release_destination_runs(1, $1, 100)", ORIGIN)
        worker_id = await a_worker(database)
        [again] = await claimed(database, worker_id)
        assert again.due_at == run.due_at, "it keeps its place among others"
        await settled(database, worker_id, again)

        assert await self.lateness(database) == [1, 0, 1]

    async def test_attempt_that_waited_for_a_slot_counts_no_start_delay(self, database, clock):
        for _ in range(2):
            await a_ready_run(database, concurrency=("customer-7", 1))
        await staged(database)
        for _ in range(2):
            worker_id = await a_worker(database)
            [run] = await claimed(database, worker_id)
            await clock.advance(seconds(200))
            await settled(database, worker_id, run)

        assert await self.lateness(database) == [2, 1, 2]


async def test_roll_ups_are_forgotten_after_their_time(database, clock):
    await ended(database)
    await figures.fold(database, 100)
    await clock.advance(ROLLUPS_KEPT)
    await forget_older(database, Aging.ROLLUPS, ROLLUPS_KEPT, 100)
    assert len(await counts(database)) == 1  # its minute has not passed

    await clock.advance(timedelta(hours=1))
    await forget_older(database, Aging.ROLLUPS, ROLLUPS_KEPT, 100)

    assert await counts(database) == []


async def test_a_statement_that_records_nothing_notes_nothing(database):
    await database.execute("insert into duly.attempts select * from duly.attempts where false")

    assert await database.fetchval("select count(*) from duly.tallies") == 0


FULL_ROLLUPS = """
insert into duly.rollups
select tenant, 'minute', $1::timestamptz + interval '1 minute' * minute, case queue when 0 then '' else 'queue ' || queue end,
       1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, array_fill(0, array[21]), array_fill(0, array[21])
  from generate_series(1, 2) as tenant, generate_series(0, 4) as queue, generate_series(0, 1999) as minute
"""


async def test_a_chart_reads_its_own_steps_and_nothing_else(database):
    await database.execute(FULL_ROLLUPS, START)
    await database.execute("analyze duly.rollups")
    chosen = (1, "minute", START + 500 * MINUTE, START + 560 * MINUTE, 60, "")
    plan = await database.fetchval(f"explain (analyze, format json) {figures.SQL['series']}", *chosen)
    scans = [node for node in nodes_of(json.loads(plan)[0]["Plan"]) if node.get("Relation Name") == "rollups"]

    assert [(node["Node Type"], node["Actual Rows"]) for node in scans] == [("Index Scan", 60)]
    assert [node for node in scans if node.get("Rows Removed by Filter")] == []


def nodes_of(node):
    yield node
    for child in node.get("Plans", ()):
        yield from nodes_of(child)


async def test_upcoming_fires_are_read_by_the_minute_unless_they_may_repeat(database):
    """However many daily jobs there are, an hour has sixty minutes; what fires each minute has a beat of its own."""
    for offset in (61, 75, 119, 125):
        await an_active_schedule(database, every=86_400, anchor=START + seconds(offset))
    await an_active_schedule(database, every=60, anchor=START + seconds(65))
    await a_waiting_run(database, delay=70)

    found = await figures.upcoming(database, 1, START + timedelta(hours=1))

    told = sorted(
        (one.due_at, one.every_seconds, one.timers, one.repeats) for one in found if one.every_seconds is None
    )
    assert told == [(START + MINUTE, None, 4, False), (START + 2 * MINUTE, None, 1, False)]
    assert [(one.due_at, one.every_seconds, one.timers, one.repeats) for one in found if one.every_seconds] == [
        (START + seconds(65), 60, 1, True)
    ]
