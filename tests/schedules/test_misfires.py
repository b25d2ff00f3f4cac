"""Misfires: one run for all, all of them in the backfill lane, or none; nothing that was missed is silent."""

from datetime import datetime, timedelta
from math import ceil
from uuid import UUID

import pytest

from duly.domain.runs.run_id import occurrence_id
from duly.moves.schedules.backfill import Allowance
from duly.moves.schedules.edit import edit
from tests.builders import (
    a_ready_run,
    a_schedule,
    a_worker,
    an_active_schedule,
    claimed,
    counts,
    seconds,
    settled,
    staged,
)
from tests.clock import START
from tests.schedules.stories import (
    LATER,
    MINUTE,
    a_cron,
    is_sound,
    lane,
    minutes,
    next_fire,
    occurrences,
    pending,
    run_through,
    skipped,
    skips,
    staged_all,
    taken,
)

HOUR = timedelta(hours=1)
ALL = {"policy": "fire_all"}


class TestFireOnce:
    async def test_fire_once_runs_the_latest_occurrence_with_the_number_of_missed_ones(self, database, clock):
        job = await a_cron(database)
        await staged(database)
        await clock.advance(10 * MINUTE)

        await staged(database)

        assert await occurrences(database, job.job_id) == minutes(0, 10)
        assert await skips(database) == [skipped("misfire", 1, 9, 9)]
        [(missed, previous, due_at)] = await database.fetch(
            "select (options->>'missed')::int, previous_scheduled_at, due_at from duly.ready where scheduled_at > $1",
            START,
        )
        assert (missed, previous, due_at) == (10, START, START + 10 * MINUTE), "it leaves no hole to what ran before"
        assert await pending(database, job.job_id) == START + 11 * MINUTE

    @pytest.mark.parametrize("trigger", [{"type": "cron", "expr": "0 9 * * *"}, {"type": "interval", "every": "PT24H"}])
    async def test_single_missed_occurrence_runs_for_its_own_moment_and_counts_as_missed(
        self, database, clock, trigger
    ):
        job = await an_active_schedule(database, trigger=trigger)
        await clock.advance(HOUR)

        await staged(database)

        assert await occurrences(database, job.job_id) == [START]
        assert await database.fetchval("select options->>'missed' from duly.ready") == "1"
        assert await skips(database) == []

    @pytest.mark.parametrize(("late", "missed"), [(60, None), (60.000001, "2"), (30, None)])
    async def test_within_the_grace_it_is_on_time(self, database, clock, late, missed):
        await a_cron(database)
        await clock.advance(late)

        await staged(database)

        assert (
            await database.fetchval("select options->>'missed' from duly.ready order by scheduled_at limit 1") == missed
        )

    async def test_the_grace_is_the_schedules_own(self, database, clock):
        patient = await a_cron(database, misfire={"grace": "PT1H"})
        closed = await an_active_schedule(database, misfire={"grace": "PT1H"})
        await clock.advance(30 * MINUTE)

        for job in (patient, closed):
            await staged_all(database)
            assert await occurrences(database, job.job_id) == minutes(*range(31))
        assert await skips(database) == []

    @pytest.mark.parametrize(("window", "ran"), [("PT5M", []), ("PT15M", [0])])
    async def test_occurrence_older_than_the_misfire_window_does_not_run(self, database, clock, window, ran):
        job = await a_cron(database, "0 * * * *", misfire={"window": window})
        await clock.advance(10 * MINUTE)

        await staged(database)

        assert await occurrences(database, job.job_id) == minutes(*ran)
        assert await skips(database) == ([] if ran else [skipped("misfire", 0)])
        assert await pending(database, job.job_id) == START + HOUR

    @pytest.mark.timeout(120)
    async def test_six_hours_down_with_a_thousand_schedules_make_a_thousand_runs(self, database, clock):
        for number in range(500):
            await a_cron(database, priority=number % 10)
            await an_active_schedule(database)
        assert await staged_all(database) == 1000
        await run_through(database)
        await clock.advance(6 * HOUR)

        assert await staged_all(database) == 1000

        assert await counts(database) == {"timers": 1000, "ready": 1000}
        assert await database.fetch(
            "select reason, count(*), sum((detail->>'count')::int) from duly.attempts where outcome = 'skipped' group by 1"
        ) == [("skipped_misfire", 1000, 1000 * 359)]
        assert set(await occurrences(database)) == {START + 6 * HOUR}
        assert await is_sound(database)


class TestSkip:
    async def test_skip_policy_runs_no_missed_occurrence_and_keeps_the_next_fire(self, database, clock):
        job = await a_cron(database, misfire={"policy": "skip"})
        await staged(database)
        await clock.advance(10 * MINUTE + seconds(30))

        await staged(database)

        assert await occurrences(database, job.job_id) == minutes(0)
        assert await skips(database) == [skipped("misfire", 1, 10, 10)]
        fire = await next_fire(database, job.job_id)
        assert fire is not None
        assert (fire["scheduled_at"], fire["previous_scheduled_at"]) == (START + 11 * MINUTE, START)


class TestFireAll:
    async def test_all_go_through_the_lane_oldest_first_at_its_rate(self, database, clock):
        job = await a_cron(database, misfire=ALL | {"rate": 2})
        await staged(database)
        await run_through(database)
        await clock.advance(5 * MINUTE + seconds(30))
        await staged_all(database)
        assert await occurrences(database) == []
        [backfill] = await database.fetch("select origin, total, rate, cursor_at from duly.backfills")
        assert tuple(backfill) == ("schedule", 5, 2, START + MINUTE)

        ran, made = [], []
        for _ in range(20):
            made += await lane(database, clock, span=0.5, step=0.5)
            assert sum(made[-2:]) <= 2, "two a second"
            ran.append(await run_through(database))

        assert [moment for moments in ran for moment in moments] == minutes(1, 2, 3, 4, 5)
        assert await database.fetchval("select state from duly.backfills") == "done"
        rows = await database.fetch("select run_id from duly.attempts where scheduled_at > $1 order by run_id", START)
        assert [row[0] for row in rows] == [
            occurrence_id(job.job_id, moment, "schedule") for moment in minutes(1, 2, 3, 4, 5)
        ]
        assert await skips(database) == []
        assert await is_sound(database)

    @pytest.mark.parametrize("rate", [0.5, 1, 2.7, 7, 10, 250])
    @pytest.mark.parametrize("step", [0.2, 0.7, 1.0, 1.3])
    async def test_no_second_has_more_runs_of_a_job_than_its_rate(self, database, clock, rate, step):
        await a_cron(database, misfire=ALL | {"rate": rate})
        await clock.advance(6 * HOUR)
        await staged_all(database)
        await clock.advance(5)

        made = []
        for _ in range(int(8 / step)):  # Another scheduler at each look: nothing is remembered but in the database.
            [count] = await lane(database, clock, span=step, step=step)
            made.append((clock.at - seconds(step), count))
            for box in ("ready", "blocked", "concurrency_keys"):  # They all have run.
                await database.execute(f"delete from duly.{box}")

        for first, _ in made:
            in_a_second = sum(count for at, count in made if first <= at < first + seconds(1))
            assert in_a_second <= ceil(rate), made
        assert sum(count for _, count in made) >= 1 + int(min(rate, 1 / step) * 4), "it goes on"

    async def test_second_catch_up_waits_for_the_rate_of_the_first(self, database, clock):
        await a_cron(database, misfire=ALL)
        await clock.advance(2 * MINUTE + seconds(30))
        await staged_all(database)
        await database.execute("update duly.backfills set cursor_at = $1, created = 2", START + 2 * MINUTE)
        assert await lane(database, clock, span=0.5, step=0.5) == [1]
        assert await database.fetchval("select state from duly.backfills") == "done"
        await database.execute(
            "insert into duly.backfills select (jsonb_populate_record(backfills, jsonb_build_object("
            " 'backfill_id', gen_random_uuid(), 'state', 'active', 'from_at', to_at, 'cursor_at', to_at,"
            " 'to_at', to_at + interval '1 minute', 'due_at', duly.clock_now(), 'requested_at', duly.clock_now()))).*"
            " from duly.backfills"
        )
        await run_through(database)

        assert await lane(database, clock, span=1.5, step=0.5) == [0, 1, 0]

    async def test_each_knows_the_moment_before_it_across_batches_and_so_does_the_next_on_time(self, database, clock):
        job = await a_cron(database, misfire=ALL | {"rate": 2})
        await staged(database)
        await clock.advance(5 * MINUTE + seconds(30))
        await staged_all(database)
        await lane(database, clock, span=3)
        await clock.advance(seconds(25))
        await staged_all(database)

        rows = await database.fetch(
            "select scheduled_at, previous_scheduled_at from duly.ready union all"
            " select scheduled_at, previous_scheduled_at from duly.blocked order by 1"
        )

        assert [tuple(row) for row in rows] == list(zip(minutes(*range(7)), [None, *minutes(*range(6))], strict=True))
        assert await pending(database, job.job_id) == START + 7 * MINUTE

    async def test_catch_up_runs_wait_for_each_other_even_when_overlap_is_allowed(self, database, clock):
        job = await a_cron(database, misfire=ALL | {"rate": 10}, overlap={"policy": "allow"})
        await clock.advance(10 * MINUTE)
        await staged_all(database)
        await lane(database, clock, span=3)

        assert len(await occurrences(database, job.job_id)) == 1
        assert len(await occurrences(database, job.job_id, "blocked")) == 10
        assert await run_through(database) == minutes(0)
        assert await occurrences(database, job.job_id) == minutes(1)

    async def test_occurrence_that_waits_for_its_retry_lets_the_next_missed_one_run(self, database, clock):
        """A poisoned occurrence does not hold up the others."""
        await a_cron(database, misfire=ALL | {"rate": 10})
        await clock.advance(5 * MINUTE)
        await staged_all(database)
        await lane(database, clock, span=2)
        worker_id, run = await taken(database)

        await settled(database, worker_id, run, LATER)

        assert await occurrences(database) == minutes(1)
        assert await is_sound(database)

    async def test_timely_runs_start_before_missed_ones(self, database, clock):
        job = await a_cron(database, misfire=ALL, priority=0)
        await clock.advance(5 * MINUTE)
        await staged_all(database)
        await lane(database, clock, span=1)
        timely = await a_ready_run(database, priority=9)
        worker_id = await a_worker(database)

        [first] = await claimed(database, worker_id, limit=1)
        [second] = await claimed(database, worker_id, limit=1)

        assert (first.run_id, second.job_id) == (timely, job.job_id)

    async def test_beyond_the_limit_the_oldest_are_on_record(self, database, clock):
        await a_cron(database, misfire=ALL | {"limit": 3})
        await clock.advance(10 * MINUTE)

        await staged_all(database)

        assert await skips(database) == [skipped("limit", 0, 7, 8)]
        assert await database.fetchrow("select from_at, total from duly.backfills") == (START + 8 * MINUTE, 3)

    async def test_beyond_the_window_they_are_on_record_as_well(self, database, clock):
        await a_cron(database, misfire=ALL | {"window": "PT5M", "limit": 2})
        await clock.advance(10 * MINUTE)

        await staged_all(database)

        assert await skips(database) == [skipped("misfire", 0, 4, 5), skipped("limit", 5, 8, 4)]

    async def test_a_day_is_the_window_without_one(self, database, clock):
        await a_cron(database, "0 * * * *", misfire=ALL)
        await clock.advance(30 * HOUR)

        await staged_all(database)

        assert await skips(database) == [skipped("misfire", 0, 5 * 60, 6)]
        assert await database.fetchval("select total from duly.backfills") == 25

    async def test_six_hours_down_with_a_thousand_schedules_all_are_in_the_lane(self, database, clock):
        for number in range(1000):
            await a_cron(database, misfire=ALL, priority=number % 10)
        assert await staged_all(database) == 1000
        await run_through(database)
        await clock.advance(6 * HOUR)

        assert await staged_all(database) == 1000

        assert await counts(database) == {"timers": 1000}, "nothing but what the lane makes"
        assert await database.fetchval("select sum(total) from duly.backfills") == 1000 * 360
        assert await skips(database) == []
        made = await lane(database, clock, span=3)
        assert made == [500, 500, 500], "a thousand wait, and the fleet has its cap"
        assert await is_sound(database)

    async def test_catch_up_runs_every_missed_occurrence_exactly_once(self, database, clock):
        jobs = [(await a_cron(database, misfire=ALL | {"rate": 100}, priority=number)).job_id for number in range(3)]
        await clock.advance(2 * HOUR)
        await staged_all(database)
        ran: dict[UUID, list[datetime]] = {job_id: [] for job_id in jobs}
        worker_id = await a_worker(database, lease=timedelta(days=1))

        for _ in range(10):
            await lane(database, clock, span=1)
            while runs := await claimed(database, worker_id):
                for run in runs:
                    ran[run.job_id].append(run.scheduled_at)
                    await settled(database, worker_id, run)

        assert ran == {job_id: minutes(*range(121)) for job_id in jobs}, "each of them, oldest first"
        assert await database.fetch("select created, total, state from duly.backfills") == [(121, 121, "done")] * 3
        assert await is_sound(database)

    async def test_the_fleet_makes_five_hundred_a_second(self, database, clock):
        for number in range(100):
            await a_cron(database, misfire=ALL | {"rate": 1000}, priority=number % 10)
        await clock.advance(HOUR)
        await staged_all(database)

        made = await lane(database, clock, span=5)

        assert made == [500, 500, 500, 500, 500]

    async def test_a_small_share_of_the_fleet_is_not_rounded_away(self, database, clock):
        await a_cron(database, misfire=ALL | {"rate": 1000})
        await clock.advance(HOUR)
        await staged_all(database)
        allowance = Allowance()
        allowed = []
        for _ in range(100):  # One shard of 64, looked at ten times a second: 0.78 of a run each.
            allowed.append(allowance.until(clock.at, 1 / 64))
            allowance.spend(allowed[-1])
            await clock.advance(0.1)

        assert 80 <= sum(allowed) <= 87

    async def test_catch_up_is_not_delayed_by_jobs_whose_runs_no_worker_takes(self, database, clock, monkeypatch):
        monkeypatch.setattr("duly.moves.schedules.backfill._LOOK_MAX", 2)
        for _ in range(4):
            await a_cron(database, misfire=ALL | {"rate": 1000}, queue="idle")
        await clock.advance(5 * HOUR)
        await staged_all(database)
        await lane(database, clock, span=10)
        late = await a_cron(database, "0 * * * *", misfire=ALL)
        await clock.advance(2 * HOUR)
        await staged_all(database)

        await lane(database, clock, span=10)

        assert len(await occurrences(database, late.job_id)) == 1

    async def test_the_rest_of_the_missed_are_those_of_the_rule_they_were_missed_under(self, database, clock):
        job = await a_cron(database, misfire=ALL | {"rate": 10})
        await clock.advance(5 * MINUTE + seconds(10))
        await staged_all(database)
        await edit(database, job.job_id, a_schedule(trigger={"type": "cron", "expr": "30 * * * * *"}))

        await lane(database, clock, span=3)

        made = await occurrences(database, job.job_id) + await occurrences(database, job.job_id, "blocked")
        assert made == minutes(0, 1, 2, 3, 4, 5)
