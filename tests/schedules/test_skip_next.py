"""Skip next: one occurrence is left out, staged or pending, and nothing else."""

from datetime import timedelta

import pytest

from duly.domain.errors import InvalidOption
from duly.moves.schedules.pause import pause, skip_next
from tests.builders import (
    all_started,
    an_active_schedule,
    counts,
    seconds,
    staged,
)
from tests.clock import START
from tests.schedules.stories import (
    MINUTE,
    a_cron,
    a_delay,
    is_sound,
    minutes,
    next_fire,
    occurrences,
    run_through,
    skipped,
    skips,
    staged_all,
    state_of,
    taken,
)


class TestSkipNext:
    async def test_the_pending_one_is_left_out_and_nothing_else(self, database, clock):
        job = await a_cron(database, max_runs=5)
        await staged(database)

        assert await skip_next(database, job.job_id) == START + MINUTE

        fire = await next_fire(database, job.job_id)
        assert fire is not None
        assert (fire["scheduled_at"], fire["previous_scheduled_at"], fire["runs_left"]) == (
            START + 2 * MINUTE,
            START,
            4,
        )
        assert await skips(database) == [skipped("on_request", 1)]
        await clock.advance(2 * MINUTE)
        await staged_all(database)
        assert await occurrences(database) == minutes(0, 2)
        assert await is_sound(database)

    async def test_a_staged_one_is_left_out_before_the_pending_one(self, database, clock):
        job = await a_cron(database, max_runs=5)
        await staged(database)
        await run_through(database)
        await clock.advance(57)
        await staged(database)

        assert await skip_next(database, job.job_id) == START + MINUTE

        assert await counts(database) == {"timers": 1}
        fire = await next_fire(database, job.job_id)
        assert fire is not None
        assert (fire["scheduled_at"], fire["runs_left"]) == (START + 2 * MINUTE, 4), (
            "it did not run, so it does not count"
        )
        assert fire["previous_scheduled_at"] == START, "and the next one leaves no hole"
        assert await skips(database) == [skipped("on_request", 1)]

    async def test_skip_next_repeated_skips_further_fires_in_order(self, database):
        job = await a_cron(database, "* * * * * *")
        for _ in range(3):
            await staged(database)

        skipped_at = [await skip_next(database, job.job_id) for _ in range(4)]

        assert skipped_at == [START + seconds(number) for number in (1, 2, 3, 4)]
        for _ in range(5):
            await staged(database)
        assert await occurrences(database) == [START, START + seconds(5)]

    async def test_skip_next_passes_over_a_run_that_has_started(self, database, clock):
        job = await a_cron(database)
        await staged(database)
        await run_through(database)
        await clock.advance(57)
        await staged(database)
        await taken(database)
        await clock.advance(3)

        with all_started():
            assert await skip_next(database, job.job_id) == START + 2 * MINUTE

    async def test_the_last_one_left_out_ends_the_schedule(self, database):
        job = await an_active_schedule(database, trigger={"type": "at", "at": "2026-11-02T12:00:00Z"})

        assert await skip_next(database, job.job_id) == START + timedelta(hours=3)

        assert await state_of(database, job.job_id) == "completed"
        assert await counts(database) == {}
        assert await is_sound(database)

    async def test_of_a_paused_one_it_stays_paused(self, database):
        job = await a_cron(database)
        await staged(database)
        await pause(database, job.job_id)

        await skip_next(database, job.job_id)

        fire = await next_fire(database, job.job_id)
        assert fire is not None
        assert (fire["scheduled_at"], fire["is_armed"]) == (START + 2 * MINUTE, False)
        assert await is_sound(database)

    async def test_a_fixed_delay_has_none_to_leave_out(self, database):
        job = await a_delay(database)

        with pytest.raises(InvalidOption, match="pause it"):
            await skip_next(database, job.job_id)
