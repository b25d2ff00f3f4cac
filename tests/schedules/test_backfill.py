"""Backfill: a stretch is made again in its own lane, as other runs than those by schedule, until it is done or cancelled."""

from datetime import timedelta

import pytest

from duly.domain.errors import InvalidOption, NotFound
from duly.domain.runs.options import options_of
from duly.domain.runs.run_id import occurrence_id
from duly.moves.cancel import cancel_job
from duly.moves.schedules.backfill import backfill, cancel_backfill
from duly.moves.schedules.pause import pause
from duly.store.tables import schedules
from tests.builders import RNG, a_row, a_worker, an_active_schedule, boxes_of, claimed, counts, seconds, settled, staged
from tests.clock import START
from tests.schedules.stories import (
    FOR_GOOD,
    MINUTE,
    a_cron,
    a_delay,
    is_sound,
    lane,
    minutes,
    next_fire,
    occurrences,
    pending,
    run_through,
    staged_all,
    taken,
)

HOUR = timedelta(hours=1)


async def test_a_dry_run_counts_and_makes_nothing(database):
    job = await a_cron(database)

    asked = await backfill(database, job.job_id, START - HOUR, START, RNG, dry_run=True)

    assert (asked.backfill_id, asked.count) == (None, 60)
    assert asked.first == minutes(*range(-60, -40))
    assert await schedules.backfills(database, None, 10) == []


async def test_a_dry_run_counts_more_than_one_backfill_may_have(database, monkeypatch):
    monkeypatch.setattr("duly.moves.schedules.backfill.OCCURRENCES_MAX", 50)
    job = await a_cron(database)

    asked = await backfill(database, job.job_id, START - HOUR, START, RNG, dry_run=True)

    assert (asked.count, asked.is_partial) == (60, False)
    with pytest.raises(InvalidOption, match="over 50 occurrences"):
        await backfill(database, job.job_id, START - HOUR, START, RNG, confirm=True)


async def test_more_than_ten_thousand_need_to_be_confirmed(database):
    job = await a_cron(database)
    start = START - 10_001 * MINUTE

    with pytest.raises(InvalidOption, match="more than 10,000"):
        await backfill(database, job.job_id, start, START, RNG)

    assert (await backfill(database, job.job_id, start, START, RNG, confirm=True)).backfill_id is not None
    assert (await backfill(database, job.job_id, start + MINUTE, START, RNG)).backfill_id is not None


async def test_backfill_creates_runs_at_its_rate_and_leaves_the_schedule_unchanged(database, clock):
    job = await a_cron(database, "0 * * * *", payload='{"a": 1}')
    before = await next_fire(database, job.job_id)
    asked = await backfill(database, job.job_id, START - 5 * HOUR, START, RNG, rate=0.5)

    made = await lane(database, clock, span=12)

    assert made == [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 0]
    assert await next_fire(database, job.job_id) == before
    [row] = await schedules.backfills(database, job.job_id, 10)
    assert (row.backfill_id, row.state, row.created, row.total) == (asked.backfill_id, "done", 5, 5)
    run = await a_row(database, "ready", occurrence_id(job.job_id, START - 5 * HOUR, str(asked.backfill_id)))
    assert (run["payload"], run["previous_scheduled_at"]) == ('{"a": 1}', START - 6 * HOUR)
    assert run["priority"] > 9, "below all that is on time"


async def test_of_a_moment_that_ran_by_schedule_it_is_another_run(database, clock):
    job = await a_cron(database)
    await staged(database)
    assert await run_through(database) == [START]
    await clock.advance(30)
    await backfill(database, job.job_id, START, START + MINUTE, RNG)
    await backfill(database, job.job_id, START, START + MINUTE, RNG)

    for _ in range(3):
        await lane(database, clock, span=1)
        await run_through(database)

    rows = await database.fetch("select run_id, scheduled_at from duly.attempts where job_id = $1", job.job_id)
    assert [row["scheduled_at"] for row in rows] == [START] * 3
    assert len({row["run_id"] for row in rows}) == 3
    assert await is_sound(database)


async def test_two_of_one_job_wait_for_each_other(database, clock):
    job = await a_cron(database)
    for _ in range(2):
        await backfill(database, job.job_id, START - 3 * MINUTE, START, RNG, rate=1000)
        await clock.advance(0.001)
    await lane(database, clock, span=1)

    assert [row.created for row in await schedules.backfills(database, job.job_id, 10)] == [0, 3]
    ran = []
    for _ in range(10):
        await lane(database, clock, span=1)
        ran += await run_through(database)
    assert ran == minutes(-3, -2, -1) * 2


async def test_a_scheduler_that_slept_after_its_look_makes_nothing_twice(database, clock):
    job = await a_cron(database)
    await backfill(database, job.job_id, START - 5 * MINUTE, START, RNG, rate=1)
    [work] = await schedules.lane_work(database, range(64), 10)
    stale = schedules.BackfillStep(
        work.backfill.backfill_id, work.backfill.cursor_at, START - 4 * MINUTE, seconds(1), minutes(-5)
    )

    assert await schedules.create_backfills(database, [stale]) == 1
    assert await run_through(database) == minutes(-5)
    await clock.advance(2)
    assert await schedules.create_backfills(database, [stale]) == 0


async def test_backfill_with_allow_runs_in_parallel_up_to_a_bound(database, clock):
    job = await a_cron(database)
    asked = await backfill(database, job.job_id, START - 5 * HOUR, START, RNG, rate=1000, overlap="allow")

    await lane(database, clock, 10)

    assert await counts(database) == {"timers": 1, "ready": 100, "blocked": 100}
    assert len(await run_through(database)) == 100
    for _ in range(5):
        await lane(database, clock, 2)
        await run_through(database)
    [found] = await schedules.backfills(database, job.job_id, 10)
    assert (found.backfill_id, found.created, found.state) == (asked.backfill_id, 300, "done")
    assert await is_sound(database)


async def test_another_overlap_than_these_means_nothing_to_a_backfill(database):
    job = await a_cron(database)
    with pytest.raises(InvalidOption, match=r"overlap 'skip' .*; use queue .*or allow"):
        await backfill(database, job.job_id, START - HOUR, START, RNG, overlap="skip")


async def test_backfill_leaves_future_occurrences_to_the_schedule(database):
    job = await a_cron(database)

    asked = await backfill(database, job.job_id, START - 2 * MINUTE, START + HOUR, RNG)

    assert asked.count == 2
    with pytest.raises(InvalidOption, match="is in the future; give a time in the past"):
        await backfill(database, job.job_id, START + HOUR, START + 2 * HOUR, RNG)


class TestCancel:
    async def test_cancelled_backfill_removes_runs_without_a_lease_and_creates_no_more(self, database, clock):
        job = await a_cron(database)
        asked = await backfill(database, job.job_id, START - HOUR, START, RNG, rate=5)
        assert asked.backfill_id is not None
        await lane(database, clock, span=2)
        assert await counts(database) == {"timers": 1, "ready": 1, "blocked": 9}
        _, held = await taken(database)

        assert await cancel_backfill(database, asked.backfill_id) == 9

        assert await lane(database, clock, span=3) == [0, 0, 0]
        assert await counts(database) == {"timers": 1, "leased": 1}
        assert await boxes_of(database, held.run_id) == ["leased"]
        assert await is_sound(database)
        with pytest.raises(NotFound):
            await cancel_backfill(database, asked.backfill_id)

    async def test_cancelled_backfill_removes_a_ready_run(self, database, clock):
        job = await a_cron(database)
        asked = await backfill(database, job.job_id, START - HOUR, START, RNG, rate=1)
        assert asked.backfill_id is not None
        await lane(database, clock, span=1)

        assert await cancel_backfill(database, asked.backfill_id) == 1

        assert await counts(database) == {"timers": 1}
        assert await database.fetchval("select count(*) from duly.concurrency_keys") == 0

    async def test_cancelled_backfill_leaves_scheduled_occurrences_unchanged(self, database, clock):
        job = await a_cron(database)
        asked = await backfill(database, job.job_id, START - HOUR, START, RNG)
        assert asked.backfill_id is not None
        await staged(database)

        await cancel_backfill(database, asked.backfill_id)

        assert await occurrences(database) == [START]

    async def test_with_a_concurrency_key_of_its_own_as_well(self, database, clock):
        job = await a_cron(database, options=options_of(concurrency=("customer-7", 1)))
        asked = await backfill(database, job.job_id, START - HOUR, START, RNG, rate=5)
        assert asked.backfill_id is not None
        await lane(database, clock, span=3)

        assert await cancel_backfill(database, asked.backfill_id) == 15
        assert await is_sound(database)

    async def test_the_end_of_the_job_ends_its_backfills(self, database, clock):
        job = await a_cron(database)
        await backfill(database, job.job_id, START - HOUR, START, RNG, rate=5)
        await lane(database, clock, span=2)

        await cancel_job(database, job.job_id)

        assert await lane(database, clock, span=3) == [0, 0, 0]
        assert [row.state for row in await schedules.backfills(database, job.job_id, 10)] == ["cancelled"]
        assert await counts(database) == {}
        assert await is_sound(database)


async def test_backfill_bounds_the_runs_that_wait_without_a_worker(database, clock):
    job = await a_cron(database)
    await backfill(database, job.job_id, START - 10 * HOUR, START, RNG, rate=100)

    await lane(database, clock, span=20)

    assert len(await occurrences(database, job.job_id, "blocked")) == 100


async def test_backfill_continues_while_the_schedule_is_paused_or_completed(database, clock):
    job = await a_cron(database, max_runs=1)
    await backfill(database, job.job_id, START - 3 * MINUTE, START, RNG)
    await staged_all(database)
    assert await pending(database, job.job_id) is None
    await run_through(database)

    ran = []
    for _ in range(5):
        await lane(database, clock, span=1)
        ran += await run_through(database)

    assert ran == minutes(-3, -2, -1)


async def test_its_runs_count_neither_as_failures_nor_as_runs_of_the_schedule(database, clock):
    job = await a_cron(database, "0 * * * *", pause_on_failure=1, max_runs=5)
    await backfill(database, job.job_id, START - HOUR, START, RNG)
    await lane(database, clock, span=1)
    worker_id = await a_worker(database)
    [run] = await claimed(database, worker_id)

    await settled(database, worker_id, run, FOR_GOOD)

    fire = await next_fire(database, job.job_id)
    assert fire is not None
    assert (fire["is_armed"], fire["runs_left"]) == (True, 5)


@pytest.mark.parametrize("rate", [0, -1, 1001])
async def test_a_rate_that_cannot_be_kept_is_refused(database, rate):
    job = await a_cron(database)

    with pytest.raises(InvalidOption):
        await backfill(database, job.job_id, START - HOUR, START, RNG, rate=rate)
    with pytest.raises(InvalidOption):
        await backfill(database, job.job_id, START, START, RNG)


async def test_a_fixed_delay_has_no_occurrences_to_make_again(database):
    job = await a_delay(database)

    with pytest.raises(InvalidOption):
        await backfill(database, job.job_id, START - HOUR, START, RNG)


async def test_backfill_of_a_plain_interval_begins_at_its_anchor(database, clock):
    job = await an_active_schedule(database, every=60)
    await pause(database, job.job_id)
    await clock.advance(3 * MINUTE + seconds(1))
    await backfill(database, job.job_id, START - HOUR, clock.at, RNG, rate=100)

    await lane(database, clock, span=2)

    assert await occurrences(database) + await occurrences(database, box="blocked") == minutes(0, 1, 2, 3)
