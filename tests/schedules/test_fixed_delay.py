"""Fixed delay: the next run is one period after the end of the last, however that ended; and it is never left without one."""

import pytest

from duly.domain.runs.options import options_of
from duly.domain.runs.outcome import Cancelled, Outcome, Succeeded
from duly.domain.runs.retry import Retry
from duly.moves.cancel import cancel_job, cancel_run
from duly.moves.dead import replay
from duly.moves.schedules.edit import edit
from duly.moves.schedules.pause import pause, resume
from duly.moves.settle import hand_back
from duly.moves.trigger import TriggerState, trigger
from duly.store.boxes import history
from tests.builders import a_schedule, all_started, counts, seconds, settled, staged
from tests.clock import START
from tests.schedules.stories import (
    FOR_GOOD,
    LATER,
    MINUTE,
    a_cron,
    a_delay,
    is_sound,
    lose_workers,
    minutes,
    next_fire,
    occurrences,
    pending,
    run_through,
    skips,
    staged_all,
    state_of,
    taken,
)

ENDS: dict[str, Outcome] = {"success": Succeeded(), "death": FOR_GOOD, "cancel": Cancelled("asked to")}


def every(number, **more):
    """Give a job that counts so many seconds from the end of its last run."""
    return a_schedule(trigger={"type": "interval", "every": f"PT{number}S", "mode": "fixed_delay", **more})


async def test_the_first_is_at_the_anchor_and_while_it_runs_there_is_no_next(database, clock):
    job = await a_delay(database)
    await staged(database)

    assert await occurrences(database) == [START]
    assert await pending(database, job.job_id) is None
    await clock.advance(100 * MINUTE)
    assert await staged_all(database) == 0, "no overlap and no misfire is possible"
    assert await is_sound(database)


@pytest.mark.parametrize("end", ENDS)
async def test_the_next_is_one_period_after_the_end(database, clock, end):
    job = await a_delay(database)
    await staged(database)
    worker_id, run = await taken(database)
    await clock.advance(42.5)

    await settled(database, worker_id, run, ENDS[end])

    assert await pending(database, job.job_id) == START + seconds(102.5)
    await clock.advance(MINUTE)
    await staged(database)
    [following] = await database.fetch("select scheduled_at, previous_scheduled_at from duly.ready")
    assert tuple(following) == (START + seconds(102.5), START)
    assert await is_sound(database)


async def test_a_retry_is_part_of_the_run(database, clock):
    job = await a_delay(database)
    await staged(database)
    worker_id, run = await taken(database)
    await settled(database, worker_id, run, LATER)
    assert await pending(database, job.job_id) is None
    await clock.advance(600)
    await staged(database)

    await run_through(database)

    assert await pending(database, job.job_id) == START + seconds(660)


@pytest.mark.parametrize("where", ["ready", "retrying"])
async def test_fixed_delay_counts_a_run_cancelled_while_waiting_as_ended(database, clock, where):
    job = await a_delay(database)
    await staged(database)
    [run_id] = [row[0] for row in await database.fetch("select run_id from duly.ready")]
    if where == "retrying":
        worker_id, run = await taken(database)
        await settled(database, worker_id, run, LATER)
    await clock.advance(10)

    await cancel_run(database, run_id)

    assert await pending(database, job.job_id) == START + seconds(70)
    assert await is_sound(database)


async def test_fixed_delay_counts_a_cancelled_run_returned_by_its_worker_as_ended(database, clock):
    job = await a_delay(database)
    await staged(database)
    worker_id, run = await taken(database)
    await cancel_run(database, run.run_id)

    await hand_back(database, worker_id, [run])

    assert await pending(database, job.job_id) == START + MINUTE


async def test_fixed_delay_counts_a_run_that_dies_with_its_lost_worker_as_ended(database, clock):
    job = await a_delay(database, options=options_of(retry=Retry(1)))
    await staged(database)
    await taken(database)

    await lose_workers(database, clock)

    assert await counts(database) == {"timers": 1, "dead": 1}
    assert await pending(database, job.job_id) == clock.at + MINUTE
    assert await is_sound(database)


async def test_a_replay_does_not_move_the_schedule(database, clock):
    job = await a_delay(database)
    await staged(database)
    worker_id, run = await taken(database)
    await settled(database, worker_id, run, FOR_GOOD)
    await clock.advance(30)
    await replay(database, [run.run_id])

    await run_through(database)

    assert await pending(database, job.job_id) == START + MINUTE


class TestPause:
    async def test_fixed_delay_pause_removes_the_staged_run_and_resume_restores_it(self, database, clock):
        job = await a_delay(database, max_runs=5)
        await staged(database)
        await run_through(database)
        await clock.advance(57)
        await staged(database)
        assert await occurrences(database) == minutes(1)

        await pause(database, job.job_id)
        assert await occurrences(database) == []
        await resume(database, job.job_id)

        fire = await next_fire(database, job.job_id)
        assert fire is not None
        assert (fire["scheduled_at"], fire["previous_scheduled_at"], fire["runs_left"]) == (*minutes(1, 0), 4)
        await staged(database)
        assert await occurrences(database) == minutes(1)
        assert await is_sound(database)

    async def test_between_two_runs(self, database, clock):
        job = await a_delay(database)
        await staged(database)
        await run_through(database)
        await pause(database, job.job_id)
        await clock.advance(10 * MINUTE)
        assert await staged_all(database) == 0

        assert await resume(database, job.job_id) == "active"

        assert await pending(database, job.job_id) == clock.at, "its moment has passed: it runs now"
        assert await skips(database) == []

    async def test_fixed_delay_resumed_before_its_due_moment_keeps_the_pending_fire(self, database, clock):
        job = await a_delay(database)
        await staged(database)
        await run_through(database)
        await pause(database, job.job_id)
        await clock.advance(10)

        await resume(database, job.job_id)

        assert await pending(database, job.job_id) == START + MINUTE

    async def test_fixed_delay_counts_from_a_run_that_ends_before_the_resume(self, database, clock):
        job = await a_delay(database)
        await staged(database)
        worker_id, run = await taken(database)
        await pause(database, job.job_id)
        await clock.advance(10)
        await settled(database, worker_id, run)
        assert await pending(database, job.job_id) is None, "a paused one is not armed by the end of its run"
        assert await is_sound(database)

        await resume(database, job.job_id)

        assert await pending(database, job.job_id) == START + seconds(70)

    async def test_fixed_delay_counts_from_a_run_that_ends_after_the_resume(self, database, clock):
        job = await a_delay(database)
        await staged(database)
        worker_id, run = await taken(database)
        await pause(database, job.job_id)
        await resume(database, job.job_id)
        assert await pending(database, job.job_id) is None
        assert await is_sound(database)
        await clock.advance(10)

        await settled(database, worker_id, run)

        assert await pending(database, job.job_id) == START + seconds(70)


class TestEdit:
    async def test_of_the_period_re_times_the_pending_one_from_the_end_of_the_last(self, database, clock):
        job = await a_delay(database, every=600)
        await staged(database)
        await clock.advance(10)
        await run_through(database)
        await clock.advance(10)

        await edit(database, job.job_id, every(60))

        assert await pending(database, job.job_id) == START + seconds(70)
        assert await is_sound(database)

    async def test_of_a_paused_one_as_well(self, database, clock):
        job = await a_delay(database, every=600)
        await staged(database)
        await run_through(database)
        await pause(database, job.job_id)
        await edit(database, job.job_id, every(60))
        assert await pending(database, job.job_id) is None

        await resume(database, job.job_id)

        assert await pending(database, job.job_id) == START + MINUTE

    async def test_fixed_delay_edit_removes_the_staged_run_and_times_it_anew(self, database, clock):
        job = await a_delay(database)
        await staged(database)
        await run_through(database)
        await clock.advance(57)
        await staged(database)

        await edit(database, job.job_id, every(90))

        assert await occurrences(database) == []
        assert await pending(database, job.job_id) == START + seconds(90)
        assert await is_sound(database)

    async def test_while_it_runs_counts_from_its_end(self, database, clock):
        job = await a_delay(database, every=600)
        await staged(database)
        worker_id, run = await taken(database)
        with all_started():
            await edit(database, job.job_id, every(60))
        assert await pending(database, job.job_id) is None
        assert await is_sound(database)
        await clock.advance(10)

        await settled(database, worker_id, run)

        assert await pending(database, job.job_id) == START + seconds(70)

    async def test_of_something_else_leaves_the_pending_one_where_it_is(self, database, clock):
        job = await a_delay(database, every=60)
        await staged(database)
        await run_through(database)
        await clock.advance(10)

        await edit(database, job.job_id, a_schedule(trigger=every(60).schedule["trigger"], payload='{"new": true}'))

        assert await pending(database, job.job_id) == START + MINUTE

    async def test_to_a_cron_while_it_runs(self, database, clock):
        job = await a_delay(database)
        await staged(database)
        worker_id, run = await taken(database)
        with all_started():
            await edit(database, job.job_id, a_schedule(trigger={"type": "cron", "expr": "*/5 * * * *"}))
        assert await pending(database, job.job_id) == START + 5 * MINUTE

        await settled(database, worker_id, run)

        assert await pending(database, job.job_id) == START + 5 * MINUTE, "the end of a run no longer arms it"

    async def test_from_a_cron_while_a_run_of_it_is_under_way(self, database, clock):
        """Its end arms nothing, so the schedule must not wait for it."""
        job = await a_cron(database)
        await staged(database)
        worker_id, run = await taken(database)
        await clock.advance(10)
        with all_started():
            await edit(database, job.job_id, every(60))
        assert await pending(database, job.job_id) is not None
        await settled(database, worker_id, run)

        await staged(database)
        await run_through(database)

        assert await pending(database, job.job_id) == clock.at + MINUTE
        assert await is_sound(database)


class TestTrigger:
    async def test_a_manual_run_does_not_move_the_schedule(self, database, clock):
        job = await a_delay(database)
        await staged(database)
        await run_through(database)
        await clock.advance(10)
        assert (await trigger(database, job.job_id, key="k")).state is TriggerState.READY

        await clock.advance(10)
        await run_through(database)

        assert await pending(database, job.job_id) == START + MINUTE

    async def test_fixed_delay_trigger_is_skipped_during_a_run_unless_overlap_is_allowed(self, database):
        job = await a_delay(database)
        await staged(database)

        assert (await trigger(database, job.job_id, key="a")).state is TriggerState.SKIPPED
        assert (await trigger(database, job.job_id, key="b", allow_overlap=True)).state is TriggerState.READY
        fire = await next_fire(database, job.job_id)
        assert fire is not None
        assert not fire["is_armed"]


async def test_cancelled_while_it_runs_its_end_arms_nothing(database, clock):
    job = await a_delay(database)
    await staged(database)
    worker_id, run = await taken(database)
    await cancel_job(database, job.job_id)

    await settled(database, worker_id, run)

    assert await state_of(database, job.job_id) == "cancelled"
    assert await counts(database) == {}


async def test_verify_finds_a_schedule_that_waits_for_a_missing_run(database):
    await a_delay(database)
    await staged(database)
    await database.execute("delete from duly.ready")

    assert [row["broken"] for row in await history.verify(database)] == [
        "schedule that waits for the end of a run that is not there"
    ]


async def test_three_in_a_row_keep_their_distance(database, clock):
    job = await a_delay(database, every=30)
    starts = []
    for lasting in (5, 50, 0):
        await staged_all(database)
        worker_id, run = await taken(database)
        starts.append(run.scheduled_at - START)
        await clock.advance(lasting)
        await settled(database, worker_id, run)
        await clock.advance(30)

    assert starts == [seconds(0), seconds(35), seconds(115)]
    assert minutes(0)[0] + seconds(145) == await pending(database, job.job_id)
