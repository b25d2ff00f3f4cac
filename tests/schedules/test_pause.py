"""Pause and resume: nothing fires meanwhile, the place is kept, and what did not fire is on record."""

import pytest

from duly.domain.errors import JobEnded, NotFound
from duly.domain.runs.outcome import Succeeded
from duly.domain.runs.run_id import occurrence_id
from duly.moves.cancel import cancel_job
from duly.moves.schedules.pause import pause, resume, skip_next
from duly.store.tables import jobs
from tests.builders import (
    RNG,
    a_row,
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
    skipped,
    skips,
    staged_all,
    state_of,
    taken,
)


class TestPause:
    async def test_paused_schedule_fires_nothing_and_keeps_its_pending_moment(self, database, clock):
        job = await a_cron(database)
        await staged(database)
        assert await pause(database, job.job_id, "for a while") == "paused"

        await clock.advance(10 * MINUTE)

        assert await staged_all(database) == 0
        found = await jobs.find(database, job.job_id)
        assert found is not None
        assert (found["state"], found["pause_reason"], found["paused_at"]) == ("paused", "for a while", START)
        assert (found["next_run_at"], found["pending_at"]) == (None, START + MINUTE)
        assert await pause(database, job.job_id) == "already"
        assert await is_sound(database)

    async def test_resume_records_the_skipped_occurrences_exactly_once(self, database, clock):
        job = await a_cron(database)
        await staged(database)
        await pause(database, job.job_id)
        await clock.advance(10 * MINUTE + seconds(30))

        assert await resume(database, job.job_id) == "active"

        assert await skips(database) == [skipped("paused", 1, 10, 10)]
        assert await pending(database, job.job_id) == START + 11 * MINUTE
        assert await resume(database, job.job_id) == "already"
        assert (await jobs.find(database, job.job_id) or {})["paused_at"] is None
        assert await is_sound(database)

    async def test_with_catch_up_it_is_a_misfire(self, database, clock):
        job = await a_cron(database)
        await staged(database)
        await run_through(database)
        await pause(database, job.job_id)
        await clock.advance(10 * MINUTE + seconds(30))

        await resume(database, job.job_id, catch_up=True)
        await staged(database)

        assert await occurrences(database, job.job_id) == minutes(10)
        assert await skips(database) == [skipped("misfire", 1, 9, 9)]

    @pytest.mark.parametrize("kind", ["cron", "interval"])
    async def test_pause_removes_a_staged_run_and_skips_it_when_its_moment_passes(self, database, clock, kind):
        job = await (a_cron(database) if kind == "cron" else an_active_schedule(database))
        await staged(database)
        await run_through(database)
        await clock.advance(57)
        await staged(database)
        assert await occurrences(database) == minutes(1)

        await pause(database, job.job_id)

        assert await occurrences(database) == []
        assert await skips(database) == [], "its moment has not come"
        await clock.advance(10)
        await resume(database, job.job_id)
        assert await skips(database) == [skipped("paused", 1)]
        assert await pending(database, job.job_id) == START + 2 * MINUTE
        assert await is_sound(database)

    async def test_pause_removes_a_staged_run_that_fires_after_a_timely_resume(self, database, clock):
        job = await a_cron(database, max_runs=5)
        await staged(database)
        await run_through(database)
        await clock.advance(57)
        await staged(database)
        await pause(database, job.job_id)
        await clock.advance(1)

        await resume(database, job.job_id)
        await staged(database)

        run = await a_row(database, "ready", occurrence_id(job.job_id, START + MINUTE, "schedule"))
        assert run["previous_scheduled_at"] == START
        assert (await next_fire(database, job.job_id) or {})["runs_left"] == 3, "it counts once"
        assert await skips(database) == []

    async def test_pause_leaves_held_runs_and_removes_only_the_staged_runs_behind_them(self, database, clock):
        job = await a_cron(database, "* * * * * *")
        for _ in range(5):
            await staged(database)
        held = await claimed(database, await a_worker(database), limit=2)

        await pause(database, job.job_id)

        assert await occurrences(database, box="leased") == [run.scheduled_at for run in held]
        assert await occurrences(database) == []
        fire = await next_fire(database, job.job_id)
        assert fire is not None
        assert (fire["scheduled_at"], fire["previous_scheduled_at"]) == (START + seconds(2), START + seconds(1))
        assert await is_sound(database)

    async def test_pause_records_a_skip_for_a_staged_run_before_a_cancelled_one(self, database):
        """The third was cancelled: if the next fire went back before it, it would come again as well."""
        job = await a_cron(database, "* * * * * *")
        for _ in range(5):
            await staged(database)
        await database.execute("delete from duly.ready where scheduled_at = $1", START + seconds(2))

        await pause(database, job.job_id)

        assert await occurrences(database) == [START], "which is due"
        assert [(skip.reason, skip.first) for skip in await skips(database)] == [("skipped_paused", START + seconds(1))]
        assert (await next_fire(database, job.job_id) or {})["scheduled_at"] == START + seconds(3)

    async def test_pause_keeps_a_staged_run_that_is_due(self, database):
        job = await a_cron(database)
        await staged(database)

        await pause(database, job.job_id)

        assert await occurrences(database) == [START]
        assert await skips(database) == []

    async def test_pause_removes_a_run_delayed_by_jitter_and_resume_restores_it(self, database, clock):
        job = await a_cron(database, "0 * * * *", jitter={"max": "PT50M"})
        fire = await next_fire(database, job.job_id)
        assert fire is not None
        await clock.advance(fire["due_at"] - START - seconds(3))
        await staged(database)
        assert await occurrences(database) == [START]

        await pause(database, job.job_id)
        assert await occurrences(database) == []
        await resume(database, job.job_id)

        assert (await next_fire(database, job.job_id) or {})["due_at"] == fire["due_at"]
        assert await skips(database) == []

    async def test_resume_completes_a_schedule_past_its_end_and_skips_its_occurrences(self, database, clock):
        job = await a_cron(database, end="2026-11-02T09:05:00Z")
        await staged(database)
        await run_through(database)
        await pause(database, job.job_id)
        await clock.advance(10 * MINUTE)

        assert await resume(database, job.job_id) == "completed"

        assert await state_of(database, job.job_id) == "completed"
        assert await skips(database) == [skipped("paused", 1, 4, 4)]
        assert await staged_all(database) == 0
        assert await counts(database) == {}
        assert await is_sound(database)

    async def test_ended_job_cannot_be_paused_or_resumed(self, database):
        job = await a_cron(database)
        await cancel_job(database, job.job_id)

        for verb in (pause, resume, skip_next):
            with pytest.raises(JobEnded):
                await verb(database, job.job_id)
        with pytest.raises(NotFound) as raised:
            await pause(database, RNG.uuid())
        assert raised.type is NotFound

    async def test_a_paused_one_can_be_cancelled(self, database):
        job = await a_cron(database)
        await pause(database, job.job_id)

        await cancel_job(database, job.job_id)

        assert await counts(database) == {}
        assert await is_sound(database)


class TestPauseOnFailure:
    async def fail(self, database, clock, outcome=FOR_GOOD):
        await staged(database)
        worker_id, run = await taken(database)
        await settled(database, worker_id, run, outcome)
        await clock.advance(MINUTE)

    @pytest.mark.parametrize("kind", ["cron", "interval", "fixed delay"])
    async def test_schedule_pauses_with_a_reason_after_consecutive_failures(self, database, clock, kind):
        makers = {"cron": a_cron, "interval": an_active_schedule, "fixed delay": a_delay}
        job = await makers[kind](database, pause_on_failure=3)
        for expected in ("active", "active", "paused"):
            await self.fail(database, clock)
            assert await state_of(database, job.job_id) == expected

        assert await staged_all(database) == 0
        found = await jobs.find(database, job.job_id)
        assert found is not None
        assert (found["failures"], found["pause_reason"]) == (3, "3 runs in a row failed")
        assert await is_sound(database)
        await resume(database, job.job_id)
        assert (await jobs.find(database, job.job_id) or {})["failures"] == 0
        assert await pending(database, job.job_id) is not None

    async def test_a_success_in_between_starts_the_count_anew(self, database, clock):
        job = await a_cron(database, pause_on_failure=2)
        for outcome in (FOR_GOOD, Succeeded(), FOR_GOOD):
            await self.fail(database, clock, outcome)

        assert await state_of(database, job.job_id) == "active"


class TestTheEndOfASchedule:
    """What a schedule has named and not fired by the time it is cancelled is on record."""

    async def test_cancel_records_the_occurrences_missed_during_a_pause(self, database, clock):
        job = await a_cron(database)
        await staged_all(database)
        await run_through(database)
        await pause(database, job.job_id)
        await clock.advance(3.5 * 60)

        await cancel_job(database, job.job_id)

        assert await skips(database, job.job_id) == [skipped("paused", 1, 3, 3)]
        assert await is_sound(database)

    async def test_cancel_records_the_occurrences_that_no_scheduler_staged(self, database, clock):
        job = await a_cron(database)
        await clock.advance(2.5 * 60)

        await cancel_job(database, job.job_id)

        assert await skips(database, job.job_id) == [skipped("on_request", 0, 2, 3)]

    async def test_cancel_records_the_occurrences_that_the_catch_up_has_not_created(self, database, clock):
        job = await a_cron(database, misfire={"policy": "fire_all"})
        await clock.advance(10 * 60)
        await staged_all(database)
        await lane(database, clock, 2)

        await cancel_job(database, job.job_id)

        [left] = await skips(database, job.job_id)
        made = await database.fetchval("select created from duly.backfills where job_id = $1", job.job_id)
        assert (left.reason, left.first, left.count) == ("skipped_on_request", START + made * MINUTE, 11 - made)

    async def test_cancel_of_a_timely_schedule_records_no_skip(self, database):
        job = await a_cron(database)
        await staged_all(database)

        await cancel_job(database, job.job_id)

        assert await skips(database, job.job_id) == []
