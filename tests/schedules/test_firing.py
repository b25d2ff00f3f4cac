"""Every kind of schedule fires at its moments, under the right names, and arms the next fire in the same move."""

import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duly.domain.errors import InvalidSchedule
from duly.domain.runs.run import HORIZON
from duly.domain.runs.run_id import occurrence_id
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.jitter import Jitter
from duly.domain.triggers.moments import EPOCH
from duly.domain.triggers.schedule.planning import plan_fire
from duly.moves import stage as module
from duly.moves.stage import Cohorts, stage
from duly.store.boxes import timers
from duly.store.boxes.timers import DueFire
from tests.builders import a_row, a_scheduler, an_active_schedule, counts, hold, seconds, staged
from tests.clock import START
from tests.schedules.stories import (
    MINUTE,
    a_cron,
    is_sound,
    minutes,
    next_fire,
    occurrences,
    pending,
    run_through,
    skipped,
    skips,
    staged_all,
    state_of,
)

CRON = {"type": "cron"}
# Each kind of trigger, with the minutes after 09:00 at which it fires first.
KINDS = {
    "cron": ({"type": "cron", "expr": "*/20 * * * *"}, (0, 20, 40, 60)),
    "cron in a zone": ({"type": "cron", "expr": "30 10 * * *", "tz": "Europe/Berlin"}, (30, 24 * 60 + 30)),
    "rrule": (
        {"type": "rrule", "rrule": "FREQ=DAILY;BYHOUR=9,10;BYMINUTE=15", "dtstart": "2026-11-01T09:15:00"},
        (15, 75),
    ),
    "iso8601": ({"type": "iso8601", "text": "R/2026-11-02T09:00:00Z/PT25M"}, (0, 25, 50, 75)),
    "any": (
        {"type": "any", "of": [{"type": "cron", "expr": "0 * * * *"}, {"type": "cron", "expr": "*/30 * * * *"}]},
        (0, 30, 60),
    ),
    "text": ({"type": "text", "text": "every 10 minutes"}, (0, 10, 20)),
    "interval with an end": ({"type": "interval", "every": "PT7M", "anchor": "2026-11-02T09:00:00Z"}, (0, 7, 14)),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_schedule_of_each_kind_fires_at_its_moments_and_knows_the_one_before(database, clock, kind):
    trigger, expected = KINDS[kind]
    job_id = (await an_active_schedule(database, trigger=trigger, end="2027-01-01T00:00:00Z")).job_id

    for moment in minutes(*expected[:-1]):
        assert await pending(database, job_id) == moment
        await clock.advance(moment - clock.at - HORIZON - seconds(0.000001))
        assert await staged_all(database) == 0, "a microsecond before the horizon it is too soon"
        await clock.advance(0.000001)
        assert (await staged(database)).count == 1

    rows = await database.fetch("select run_id, scheduled_at, due_at, previous_scheduled_at from duly.ready order by 2")
    moments = minutes(*expected[:-1])
    assert [tuple(row) for row in rows] == [
        (occurrence_id(job_id, moment, "schedule"), moment, moment, before)
        for moment, before in zip(moments, [None, *moments], strict=False)
    ]
    assert await pending(database, job_id) == minutes(expected[-1])[0]
    assert await is_sound(database)


class TestCohorts:
    async def test_jobs_of_one_cohort_share_one_computation(self, database, clock, monkeypatch):
        asked: list[object] = []

        def counted(*args, **more):
            asked.append(args)
            return plan_fire(*args, **more)

        monkeypatch.setattr(module, "plan_fire", counted)
        jobs = [(await a_cron(database, priority=number)).job_id for number in range(5)]
        scheduler_id, epochs = await a_scheduler(database)
        cohorts = Cohorts()

        await stage(database, scheduler_id, epochs, cohorts=cohorts)

        assert len(asked) == 1
        assert [await pending(database, job_id) for job_id in jobs] == minutes(1) * 5
        assert await counts(database) == {"timers": 5, "ready": 5}

    async def test_fire_that_appears_during_a_stage_step_is_staged_in_the_next(self, database):
        """Story 06: what is deleted without a computed next fire would be lost."""
        known = await a_cron(database)
        scheduler_id, epochs = await a_scheduler(database)
        fires = await timers.due_fires(database, list(epochs), HORIZON, 100)
        answers = await Cohorts().answers(database, fires)
        unknown = await a_cron(database, "*/2 * * * *")

        first = await timers.stage(database, scheduler_id, epochs, HORIZON, 100, answers)

        assert first.count == 1
        assert await occurrences(database, known.job_id) == [START]
        assert await pending(database, unknown.job_id) == START
        assert (await stage(database, scheduler_id, epochs)).count == 1
        assert await pending(database, unknown.job_id) == START + 2 * MINUTE

    async def test_stage_ignores_a_fire_that_was_staged_since_it_was_read(self, database):
        job = await a_cron(database)
        scheduler_id, epochs = await a_scheduler(database)
        fires = await timers.due_fires(database, list(epochs), HORIZON, 100)
        answers = await Cohorts().answers(database, fires)
        assert (await stage(database, scheduler_id, epochs)).count == 1

        again = await timers.stage(database, scheduler_id, epochs, HORIZON, 100, answers)

        assert again.count == 0
        assert await occurrences(database, job.job_id) == [START]

    async def test_cohorts_with_colliding_keys_fire_separately(self, database):
        one, other = await a_cron(database), await a_cron(database, "*/2 * * * *")
        first = await database.fetchval("select cohort from duly.timers where job_id = $1", one.job_id)
        for table in ("timers", "jobs"):  # One second later under a cohort less by two seconds in microseconds.
            await database.execute(
                f"update duly.{table} set cohort = $2 where job_id = $1", other.job_id, first - 2_000_000
            )
        await database.execute(
            "update duly.timers set scheduled_at = $2, due_at = $2 where job_id = $1", other.job_id, START + seconds(1)
        )

        moved = [(await staged(database)).count for _ in range(3)]

        assert moved == [1, 1, 0], "the second waits for the next look"
        assert await occurrences(database, one.job_id) == [START]
        assert await occurrences(database, other.job_id) == [START + seconds(1)]
        assert await pending(database, other.job_id) == START + 2 * MINUTE

    async def test_late_and_timely_jobs_of_one_moment_go_in_one_batch(self, database, clock):
        timely = await a_cron(database, misfire={"grace": "PT60S"})
        late = await a_cron(database, misfire={"grace": "PT60S"})
        await database.execute("update duly.timers set grace_seconds = 3600 where job_id = $1", timely.job_id)
        await clock.advance(2 * MINUTE)

        assert (await staged(database)).count == 2

        assert await occurrences(database, timely.job_id) == minutes(0)
        assert await occurrences(database, late.job_id) == minutes(2)
        assert await skips(database, late.job_id) == [skipped("misfire", 0, 1, 2)]
        assert await skips(database, timely.job_id) == []

    async def test_start_delay_is_judged_at_the_moment_the_fires_were_read(self, database, clock):
        """Otherwise the answer would not fit, or none would be found, and the fire would wait for another look."""
        job = await a_cron(database)
        await clock.advance(59)
        scheduler_id, epochs = await a_scheduler(database)
        fires = await timers.due_fires(database, list(epochs), HORIZON, 100)
        answers = await Cohorts().answers(database, fires)
        await clock.advance(1.5)

        moved = await timers.stage(database, scheduler_id, epochs, HORIZON, 100, answers)

        assert moved.count == 1
        assert await occurrences(database, job.job_id) == [START]
        assert await pending(database, job.job_id) == START + MINUTE

    async def test_a_cohort_is_read_from_a_job_that_still_fires(self, database):
        """One that was cancelled may name a calendar that is gone."""
        gone, alive = await a_cron(database), await a_cron(database)
        await database.execute(
            "update duly.jobs set state = 'cancelled', schedule = '{}' where job_id = $1", gone.job_id
        )
        await database.execute("delete from duly.timers where job_id = $1", gone.job_id)

        await staged(database)

        assert await occurrences(database, alive.job_id) == [START]

    async def test_unreadable_schedule_stays_pending_and_delays_no_other_job(self, database):
        broken, sound = await a_cron(database), await a_cron(database, "*/2 * * * *")
        await database.execute(
            """update duly.jobs set schedule = '{"trigger": {"type": "tea"}}' where job_id = $1""", broken.job_id
        )

        await staged(database)

        assert await pending(database, broken.job_id) == START
        assert await occurrences(database, sound.job_id) == [START]

    async def test_a_big_batch_of_many_cohorts_stays_fast(self, database, clock):
        """10,000 fires of 5,000 cohorts in one call."""
        model = await a_cron(database, "0 9 * * *")
        await database.execute(
            "insert into duly.timers (job_id, scheduled_at, due_at, generation, tenant, queue, handler, shard, cohort, overlap)"
            "select gen_random_uuid(), at, at, 1, 1, 'default', 'greet', n % 64, n / 2, 'allow'"
            "  from (select n, $1::timestamptz as at from generate_series(0, 9999) as n) as made",
            START,
        )
        scheduler_id, epochs = await a_scheduler(database)
        fires = await timers.due_fires(database, list(epochs), HORIZON, 200)
        [plan] = {answer.plan for answer in await Cohorts().answers(database, fires)}
        answers = [timers.Answer(fire, plan, 1) for fire in fires]

        began = time.monotonic()
        moved = await timers.stage(database, scheduler_id, epochs, HORIZON, 200, answers)

        assert len(fires) == 5001
        assert moved.count == 10_001
        assert time.monotonic() - began < 5.0, (
            "as fast as without cohorts, give or take; a scan for each row takes minutes"
        )
        assert await pending(database, model.job_id) == START + timedelta(days=1)


class TestTwins:
    """What the database computes equals what the domain does."""

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.integers(0, 2**62 - 1),
        st.integers(0, 7_258_118_400_000_000).map(lambda number: EPOCH + timedelta(microseconds=number)),
        st.booleans(),
    )
    async def test_the_key_of_a_fire(self, database, cohort, moment, late):
        key = await database.fetchval("select duly.fire_key($1, $2, $3)", cohort, moment, late)

        assert key == DueFire(cohort, moment, late, START).key < 2**63

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.uuids(), st.integers(0, 7_000_000_000), st.integers(0, 86_400), st.sampled_from(["job", "occurrence"]))
    async def test_jitter(self, database, job_id, second, window, per):
        moment = datetime.fromtimestamp(second, UTC)

        delay = await database.fetchval("select duly.jitter_delay($1, $2, $3, $4)", per, job_id, moment, window)

        assert delay == seconds(Jitter(86_400, per).delay(str(job_id), second, window))

    async def test_without_jitter_nothing_is_delayed(self, database):
        assert await database.fetchval("select duly.jitter_delay(null, $1, $2, 60)", UUID(int=1), START) == timedelta()


class TestJitter:
    @pytest.mark.parametrize("per", ["job", "occurrence"])
    async def test_jittered_fire_is_due_as_computed_and_never_staged_earlier(self, database, clock, per):
        job = await a_cron(database, "*/30 * * * *", jitter={"max": "PT20M", "per": per})
        delays = []
        for moment in minutes(0, 30, 60):
            fire = await next_fire(database, job.job_id)
            assert fire is not None
            delay = seconds(Jitter(1200, per).delay(str(job.job_id), int(moment.timestamp()), 1200))
            assert (fire["scheduled_at"], fire["due_at"]) == (moment, moment + delay)
            delays.append(delay)
            await clock.advance(fire["due_at"] - clock.at - HORIZON - seconds(0.000001))
            assert await staged_all(database) == 0
            await clock.advance(0.000001)
            assert await staged_all(database) == 1

        assert (len(set(delays)) == 1) is (per == "job")
        run = await a_row(database, "ready", occurrence_id(job.job_id, START, "schedule"))
        assert run["due_at"] == START + delays[0]

    async def test_after_an_outage_an_occurrence_that_jitter_still_holds_is_not_run_early(self, database, clock):
        jobs = [(await a_cron(database, "0 * * * *", jitter={"max": "PT50M"})).job_id for _ in range(20)]
        await clock.advance(timedelta(hours=3, minutes=5))

        await staged_all(database)

        rows = await database.fetch("select job_id, scheduled_at from duly.ready")
        for job_id, moment in rows:
            delay = seconds(Jitter(3000).delay(str(job_id), int(moment.timestamp()), 3000))
            assert moment + delay <= clock.at + HORIZON, "never before it is due"
        assert {row[0] for row in rows if row[1] == minutes(120)[0]} == set(jobs), "the last that was missed, for each"
        assert all([await pending(database, job_id) in minutes(180, 240) for job_id in jobs])
        assert await is_sound(database)


class TestTheEnd:
    async def test_schedule_past_its_end_is_completed_and_loses_its_timer(self, database, clock):
        job = await a_cron(database, end="2026-11-02T09:02:00Z")
        for _ in range(5):
            await staged(database)
            await clock.advance(MINUTE)

        assert await occurrences(database, job.job_id) == minutes(0, 1), "the end itself is no longer allowed"
        assert await state_of(database, job.job_id) == "completed"
        assert await next_fire(database, job.job_id) is None
        assert await is_sound(database)

    @pytest.mark.parametrize("kind", ["cron", "interval", "fixed delay"])
    async def test_a_job_with_max_runs_ends_after_so_many(self, database, clock, kind):
        trigger = {
            "cron": {"type": "cron", "expr": "* * * * *"},
            "interval": {"type": "interval", "every": "PT1M"},
            "fixed delay": {"type": "interval", "every": "PT1M", "mode": "fixed_delay"},
        }[kind]
        job = await an_active_schedule(database, trigger=trigger, max_runs=3)
        ran = []
        for _ in range(6):
            await staged(database)
            ran += await run_through(database)
            await clock.advance(MINUTE)

        assert ran == minutes(0, 1, 2)
        assert await state_of(database, job.job_id) == "completed"
        assert await counts(database) == {}
        assert await is_sound(database)

    async def test_max_runs_counts_runs_and_ignores_skipped_occurrences(self, database, clock):
        job = await a_cron(database, max_runs=2, overlap={"policy": "skip"})
        await staged(database)
        for _ in range(3):
            await clock.advance(MINUTE)
            await staged(database)
        assert len(await skips(database, job.job_id)) == 3
        assert (await next_fire(database, job.job_id) or {})["runs_left"] == 1

        await run_through(database)
        await clock.advance(MINUTE)
        await staged(database)

        assert await run_through(database) == minutes(4)
        await staged(database)
        assert await state_of(database, job.job_id) == "completed"

    async def test_a_one_shot_fires_once(self, database, clock):
        job = await an_active_schedule(database, trigger={"type": "at", "at": "2026-11-02T09:05:00.250Z"})
        await clock.advance(5 * MINUTE)

        await staged_all(database)

        assert await occurrences(database, job.job_id) == [START + 5 * MINUTE + seconds(0.25)]
        await clock.advance(0.25)
        await run_through(database)
        await staged(database)
        assert await state_of(database, job.job_id) == "completed"

    async def test_a_one_shot_past_by_less_than_the_grace_is_taken(self, database):
        job = await an_active_schedule(database, trigger={"type": "at", "at": "2026-11-02T08:59:30Z"})

        await staged(database)

        assert await occurrences(database, job.job_id) == [START - seconds(30)]

    @pytest.mark.parametrize(
        "trigger",
        [
            {"type": "iso8601", "text": "R3/2020-01-01T00:00:00Z/PT1H"},
            {"type": "at", "at": "2026-11-02T08:58:59Z"},
        ],
    )
    async def test_schedule_that_never_fires_is_refused(self, database, trigger):
        with pytest.raises((TriggerError, InvalidSchedule)):
            await an_active_schedule(database, trigger=trigger)

        assert await counts(database) == {}


async def test_a_scheduler_answers_only_for_the_shards_it_holds(database):
    await a_cron(database)
    scheduler_id, epochs = await a_scheduler(database)
    late, _ = await a_scheduler(database)

    assert await timers.due_fires(database, [], HORIZON, 100) == []
    assert (await stage(database, late, await hold(database, late))).count == 0
    assert (await stage(database, scheduler_id, epochs)).count == 1
