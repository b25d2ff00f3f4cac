"""Cancel: the answer tells the truth, in whichever box the run stands."""

import asyncio

import asyncpg
import pytest

from duly.domain.errors import NotFound, Unsettled
from duly.domain.runs.options import options_of
from duly.domain.runs.outcome import Cancelled, Failed
from duly.domain.tenancy.audit import local_actor
from duly.moves import cancel
from duly.moves.cancel import CancelAnswer, cancel_job, cancel_run, carry_out
from duly.moves.settle import hand_back
from duly.store.boxes import history, runs
from duly.store.tables import jobs
from tests.builders import (
    RNG,
    a_dead_run,
    a_leased_run,
    a_ready_run,
    a_retrying_run,
    a_waiting_run,
    a_worker,
    an_active_schedule,
    boxes_of,
    claimed,
    counts,
    history_of,
    seconds,
    settled,
    staged,
)
from tests.clock import START

WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


class TestRun:
    @pytest.mark.parametrize("build", [a_waiting_run, a_ready_run])
    async def test_a_run_that_waits_is_cancelled_with_a_record(self, database, build):
        run_id = await build(database)

        assert await cancel_run(database, run_id, "not needed") is CancelAnswer.CANCELLED

        assert await boxes_of(database, run_id) == []
        found = await runs.find(database, run_id)
        assert found is not None
        assert (found["state"], found["reason"], found["attempt"]) == ("cancelled", "not needed", 0)

    async def test_cancel_of_a_retrying_run_removes_its_checkpoint(self, database):
        worker_id, run = await a_leased_run(database)
        await runs.save_checkpoint(database, run.run_id, run.fence, worker_id, "1")
        await settled(database, worker_id, run, Failed("broken", retry_after=seconds(60)))

        assert await cancel_run(database, run.run_id) is CancelAnswer.CANCELLED

        assert await history_of(database, run.run_id) == [(1, "cancelled", "cancelled"), (1, "failed", "retrying")]
        assert await runs.checkpoints(database, [run.run_id]) == {}

    async def test_story_22_leased_run_is_requested_to_stop_until_its_worker_confirms(self, database):
        worker_id, run = await a_leased_run(database)

        assert await cancel_run(database, run.run_id) is CancelAnswer.REQUESTED
        assert await cancel_run(database, run.run_id) is CancelAnswer.REQUESTED
        assert await boxes_of(database, run.run_id) == ["leased"]
        told = (await runs.look(database, worker_id)).signals
        assert [(signal.run_id, signal.fence, signal.kind) for signal in told] == [(run.run_id, run.fence, "cancel")]

        await settled(database, worker_id, run, Cancelled())

        assert await cancel_run(database, run.run_id) is CancelAnswer.TOO_LATE
        assert await history_of(database, run.run_id) == [(1, "cancelled", "cancelled")]

    async def test_story_03_a_cancel_does_not_touch_the_leased_row(self, database):
        worker_id, run = await a_leased_run(database)
        await cancel_run(database, run.run_id)

        assert await database.fetchval("select ctid from duly.leased") == run.tid
        assert await settled(database, worker_id, run) == []

    async def test_a_run_that_has_ended_is_too_late_to_cancel(self, database):
        worker_id, run = await a_leased_run(database)
        await settled(database, worker_id, run)

        assert await cancel_run(database, run.run_id) is CancelAnswer.TOO_LATE
        assert await history_of(database, run.run_id) == [(1, "succeeded", "succeeded")]

    async def test_a_dead_run_stays_where_a_person_will_find_it(self, database):
        run_id = await a_dead_run(database)

        assert await cancel_run(database, run_id) is CancelAnswer.TOO_LATE
        assert await boxes_of(database, run_id) == ["dead"]

    async def test_cancel_of_an_unknown_run_raises_not_found(self, database):
        run_id = RNG.uuid()

        with pytest.raises(NotFound, match=str(run_id)):
            await cancel_run(database, run_id)

    async def test_a_one_shot_is_cancelled_as_a_job_too(self, database):
        run_id = await a_waiting_run(database)

        assert await cancel_job(database, run_id) is CancelAnswer.CANCELLED

    async def test_the_next_fire_of_a_schedule_is_no_run_that_could_be_cancelled(self, database):
        submitted = await an_active_schedule(database)

        with pytest.raises(NotFound):
            await cancel_run(database, submitted.job_id)


class TestOneThatNeverStandsStill:
    """Each look finds the row on its way from one table to the next."""

    async def test_a_run_is_given_up_with_a_sentence(self, database, monkeypatch):
        run_id = await a_ready_run(database)
        monkeypatch.setattr("duly.moves.cancel._LOOKS_MAX", 2)
        monkeypatch.setattr(runs, "cancel", nothing)

        with pytest.raises(Unsettled, match=f"run {run_id}: it kept changing; try again"):
            await cancel_run(database, run_id)

    async def test_cancel_of_a_constantly_changing_schedule_gives_up_with_a_message(self, database, monkeypatch):
        job_id = (await an_active_schedule(database)).job_id
        monkeypatch.setattr("duly.moves.cancel._LOOKS_MAX", 2)
        monkeypatch.setattr(jobs, "cancel_schedule", nothing)

        with pytest.raises(Unsettled, match=f"job {job_id}: it kept changing; try again"):
            await cancel_job(database, job_id)


async def nothing(*_):
    return []


class TestCarryOut:
    async def leave_signal(self, database, worker_id, run) -> None:
        """Leave a signal as a cancel does that a settle at the same moment cannot see."""
        await database.execute(
            "insert into duly.signals select $1, $2, $3, 'cancel', duly.clock_now()", worker_id, run.run_id, run.fence
        )

    async def test_a_cancel_that_the_worker_heeded_needs_nothing_more(self, database):
        worker_id, run = await a_leased_run(database)
        await cancel_run(database, run.run_id)
        assert await carry_out(database) == 0, "the worker has the run still, and its signal"
        await settled(database, worker_id, run, Cancelled())

        await carry_out(database)

        assert await database.fetchval("select count(*) from duly.signals") == 0
        assert await history_of(database, run.run_id) == [(1, "cancelled", "cancelled")]

    async def test_a_run_that_was_retried_past_its_cancel_is_cancelled_where_it_waits(self, database):
        run_id = await a_retrying_run(database)
        await database.execute(
            "insert into duly.signals select worker_id, run_id, fence, 'cancel', now() from duly.attempts"
        )

        assert await carry_out(database) == 1

        assert await boxes_of(database, run_id) == []
        assert await database.fetchval("select count(*) from duly.signals") == 0

    async def test_a_run_that_another_worker_holds_by_now_is_signalled_to_that_one(self, database):
        first, run = await a_leased_run(database)
        await hand_back(database, first, [run])
        second = await a_worker(database)
        [again] = await claimed(database, second)
        await self.leave_signal(database, first, run)

        await carry_out(database)

        left = await database.fetch("select worker_id, run_id, fence from duly.signals")
        assert left == [(second, again.run_id, again.fence)]

    async def test_a_run_that_finished_first_has_finished(self, database):
        worker_id, run = await a_leased_run(database)
        await settled(database, worker_id, run)
        await self.leave_signal(database, worker_id, run)

        await carry_out(database)

        assert await history_of(database, run.run_id) == [(1, "succeeded", "succeeded")]
        assert await database.fetchval("select count(*) from duly.signals") == 0

    async def test_signal_for_a_forgotten_run_is_dropped(self, database):
        worker_id, run = await a_leased_run(database)
        await self.leave_signal(database, worker_id, run)
        await database.execute("delete from duly.leased")

        assert await carry_out(database) == 1
        assert await carry_out(database) == 0


class TestSchedule:
    async def test_a_cancelled_schedule_has_no_next_fire(self, database):
        submitted = await an_active_schedule(database)

        assert await cancel_job(database, submitted.job_id) is CancelAnswer.CANCELLED

        assert await counts(database) == {}
        job = await jobs.find(database, submitted.job_id)
        assert job is not None
        assert (job["state"], job["next_run_at"]) == ("cancelled", None)
        assert await history.verify(database) == []

    async def test_its_runs_that_wait_are_cancelled_and_those_that_run_go_on(self, database, clock):
        submitted = await an_active_schedule(database, every=10, anchor=START)
        worker_id = await a_worker(database)
        await staged(database)
        [running] = await claimed(database, worker_id)
        await clock.advance(10)
        await staged(database)

        await cancel_job(database, submitted.job_id)

        assert await counts(database) == {"leased": 1}
        assert await database.fetchval("select count(*) from duly.signals") == 0
        assert await settled(database, worker_id, running) == []
        assert await database.fetchval("select count(*) from duly.attempts where became = 'cancelled'") == 1

    async def test_cancel_of_a_schedule_removes_a_long_backlog_in_batches(self, database, clock, monkeypatch):
        monkeypatch.setattr(cancel, "_BATCH", 10)
        batches, taken_out = [], runs.cancel

        async def noted(database, run_ids, reason):
            batches.append(len(run_ids))
            return await taken_out(database, run_ids, reason)

        monkeypatch.setattr(runs, "cancel", noted)
        submitted = await an_active_schedule(database, every=1, anchor=START, misfire={"policy": "fire_all"})
        for _ in range(35):
            await staged(database)
            await clock.advance(1)
        left = (await counts(database))["ready"]

        assert await cancel_job(database, submitted.job_id) is CancelAnswer.CANCELLED

        assert await counts(database) == {}
        assert (max(batches), sum(batches)) == (10, left)

    async def test_cancel_locks_the_concurrency_key_after_the_blocked_runs(self, database, clock, monkeypatch):
        """As a stage does that has taken a run out of its box and comes to the gate with it."""
        monkeypatch.setattr(cancel, "_BATCH", 1)
        gated = options_of(concurrency=("door", 1))
        submitted = await an_active_schedule(database, every=10, anchor=START, options=gated)
        for _ in range(3):
            await staged(database)
            await clock.advance(10)
        assert await counts(database) == {"timers": 1, "ready": 1, "blocked": 2}
        other = await asyncpg.connect(database.url)
        transaction = other.transaction()
        await transaction.start()
        await other.execute("select from duly.blocked for update")

        cancelling = asyncio.create_task(cancel_job(database.acting_as(local_actor("root")), submitted.job_id))
        while not await database.fetchval(WAITING):
            await asyncio.sleep(0.01)
        await other.execute("select from duly.concurrency_keys for update nowait")
        await transaction.commit()

        assert await cancelling is CancelAnswer.CANCELLED
        assert await counts(database) == {}
        assert await history.verify(database) == []
        await other.close()

    async def test_cancel_of_a_schedule_signals_a_run_leased_ahead_of_its_due_time(self, database):
        submitted = await an_active_schedule(database, every=10, anchor=START + seconds(3))
        worker_id = await a_worker(database)
        await staged(database)
        [ahead] = await claimed(database, worker_id)

        await cancel_job(database, submitted.job_id)

        assert [signal.run_id for signal in (await runs.look(database, worker_id)).signals] == [ahead.run_id]

    async def test_a_retry_of_a_cancelled_schedule_is_cancelled(self, database):
        submitted = await an_active_schedule(database, every=3600, anchor=START)
        worker_id = await a_worker(database)
        await staged(database)
        [run] = await claimed(database, worker_id)
        await settled(database, worker_id, run, Failed("broken", retry_after=seconds(600)))

        await cancel_job(database, submitted.job_id)

        assert await counts(database) == {}

    async def test_cancelled_twice_the_second_is_too_late(self, database):
        submitted = await an_active_schedule(database)
        await cancel_job(database, submitted.job_id)

        assert await cancel_job(database, submitted.job_id) is CancelAnswer.TOO_LATE

    async def test_story_01_a_cancel_waits_for_the_stage_that_holds_the_timer_and_takes_the_rearmed_one(self, database):
        submitted = await an_active_schedule(database, every=60, anchor=START)
        scheduler = await asyncpg.connect(database.url, statement_cache_size=0)
        transaction = scheduler.transaction()
        await transaction.start()
        holder = RNG.uuid()
        held = await scheduler.fetch(
            "select * from duly.lease_shards($1, 's', '0', '2 seconds', null, null, null)", holder
        )
        await scheduler.fetch(
            "select * from duly.stage($1, $2, $3, '5 seconds', 10, now(), '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')",
            holder,
            [row["shard"] for row in held],
            [row["epoch"] for row in held],
        )
        cancelling = asyncio.create_task(cancel_job(database, submitted.job_id))
        await asyncio.sleep(0.05)
        assert not cancelling.done()

        await transaction.commit()

        assert await cancelling is CancelAnswer.CANCELLED
        assert await counts(database) == {}, "neither the re-armed fire nor the staged run is left"
        assert await history.verify(database) == []
        await scheduler.close()

    async def test_the_large_payload_of_a_cancelled_schedule_can_still_be_read(self, database):
        body = '"' + "x" * 5000 + '"'
        submitted = await an_active_schedule(database, payload=body)
        await cancel_job(database, submitted.job_id)

        job = await jobs.find(database, submitted.job_id)

        assert job is not None
        assert job["payload"] == body
