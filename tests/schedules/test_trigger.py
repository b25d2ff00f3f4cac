"""Trigger: a job is run now, beside its schedule; it obeys the overlap policy unless told otherwise."""

from datetime import timedelta

import pytest

from duly.domain.errors import InvalidPayload, JobEnded, NotFound
from duly.domain.runs.run_id import occurrence_id
from duly.moves.cancel import cancel_job
from duly.moves.schedules.pause import pause
from duly.moves.trigger import TriggerState, trigger
from duly.store.boxes import runs
from tests.builders import (
    RNG,
    a_row,
    boxes_of,
    history_of,
    staged,
)
from tests.clock import START
from tests.schedules.stories import (
    MINUTE,
    a_cron,
    is_sound,
    next_fire,
    pending,
    run_through,
    skipped,
    skips,
    state_of,
    taken,
)


class TestTrigger:
    @pytest.mark.parametrize(
        ("policy", "state"),
        [
            ({"policy": "skip"}, TriggerState.SKIPPED),
            ({"policy": "queue"}, TriggerState.BLOCKED),
            ({"policy": "queue", "limit": 1}, TriggerState.BLOCKED),
            ({"policy": "buffer_one"}, TriggerState.BLOCKED),
            ({"policy": "allow"}, TriggerState.READY),
            ({"policy": "allow", "limit": 1}, TriggerState.SKIPPED),
            ({"policy": "cancel_running"}, TriggerState.BLOCKED),
        ],
    )
    async def test_trigger_obeys_the_overlap_policy(self, database, policy, state):
        job = await a_cron(database, overlap=policy)
        await staged(database)
        worker_id, _ = await taken(database)

        made = await trigger(database, job.job_id, key="k")

        assert made.state is state
        expected = {TriggerState.SKIPPED: [], TriggerState.BLOCKED: ["blocked"], TriggerState.READY: ["ready"]}
        assert await boxes_of(database, made.run_id) == expected[state]
        if state is TriggerState.SKIPPED:
            assert await history_of(database, made.run_id) == [(0, "skipped", "skipped")]
        assert bool(await signalled(database, worker_id)) is (policy["policy"] == "cancel_running")
        assert await pending(database, job.job_id) == START + MINUTE, "the schedule is not moved"
        assert await is_sound(database)

    @pytest.mark.parametrize("policy", ["skip", "queue", "buffer_one", "allow", "cancel_running"])
    async def test_with_nothing_active_it_runs_now(self, database, policy):
        job = await a_cron(database, overlap={"policy": policy})

        made = await trigger(database, job.job_id, key="k")

        assert made.state is TriggerState.READY
        assert await boxes_of(database, made.run_id) == ["ready"]
        assert await is_sound(database)

    @pytest.mark.parametrize("policy", ["skip", "queue", "cancel_running", "allow"])
    async def test_trigger_runs_beside_an_active_run_when_it_allows_overlap(self, database, policy):
        job = await a_cron(database, overlap={"policy": policy, "limit": 1})
        await staged(database)
        worker_id, _ = await taken(database)

        made = await trigger(database, job.job_id, key="k", allow_overlap=True)

        assert made.state is TriggerState.READY
        assert await signalled(database, worker_id) == []
        assert (await next_fire(database, job.job_id) or {})["last_run_id"] != made.run_id
        assert await is_sound(database)

    async def test_the_next_occurrence_is_judged_by_a_manual_run_that_obeys(self, database, clock):
        job = await a_cron(database, overlap={"policy": "skip"})
        await staged(database)
        await run_through(database)
        await trigger(database, job.job_id, key="k")
        await clock.advance(MINUTE)

        await staged(database)

        assert await skips(database) == [skipped("overlap", 1)]

    async def test_cancel_running_takes_a_ready_one_out_of_its_way(self, database):
        job = await a_cron(database, overlap={"policy": "cancel_running"})
        await staged(database)

        made = await trigger(database, job.job_id, key="k")

        assert made.state is TriggerState.READY
        assert await boxes_of(database, made.run_id) == ["ready"]
        assert await history_of(database, occurrence_id(job.job_id, START, "schedule")) == [
            (0, "cancelled", "cancelled")
        ]
        assert await is_sound(database)

    async def test_trigger_key_identifies_a_single_run_for_a_day(self, database, clock):
        job = await a_cron(database)
        first = await trigger(database, job.job_id, key="k")
        await clock.advance(MINUTE)
        again = await trigger(database, job.job_id, key="k")
        other = await trigger(database, job.job_id, key="another")
        assert (again.run_id, again.state) == (first.run_id, TriggerState.REPLAYED)
        assert other.run_id != first.run_id

        await clock.advance(timedelta(days=1))

        fresh = await trigger(database, job.job_id, key="k")
        assert (fresh.state, fresh.run_id == first.run_id) == (TriggerState.READY, False)

    async def test_trigger_carries_the_payload_of_the_job_or_its_own(self, database):
        large = '{"text": "' + "x" * 5000 + '"}'
        job = await a_cron(database, payload=large)

        usual = await trigger(database, job.job_id, key="a")
        other = await trigger(database, job.job_id, key="b", payload='{"n": 7}')

        rows = {run_id: await a_row(database, "ready", run_id) for run_id in (usual.run_id, other.run_id)}
        assert (rows[usual.run_id]["payload_stored"], rows[usual.run_id]["payload"]) == (True, None)
        assert (rows[other.run_id]["payload_stored"], rows[other.run_id]["payload"]) == (False, '{"n": 7}')
        with pytest.raises(InvalidPayload):
            await trigger(database, job.job_id, key="c", payload='"' + "x" * 300_000 + '"')

    async def test_a_paused_job_can_be_run_and_stays_paused(self, database):
        job = await a_cron(database)
        await pause(database, job.job_id)

        made = await trigger(database, job.job_id, key="k")

        assert made.state is TriggerState.READY
        assert await state_of(database, job.job_id) == "paused"
        assert await is_sound(database)

    async def test_a_manual_run_does_not_count_as_one_of_max_runs(self, database):
        job = await a_cron(database, max_runs=1)

        await trigger(database, job.job_id, key="k")

        assert (await next_fire(database, job.job_id) or {})["runs_left"] == 1

    async def test_trigger_refuses_an_ended_job(self, database):
        job = await a_cron(database)
        await cancel_job(database, job.job_id)

        with pytest.raises(JobEnded):
            await trigger(database, job.job_id, key="k")
        with pytest.raises(NotFound) as raised:
            await trigger(database, RNG.uuid(), key="k")
        assert raised.type is NotFound


async def signalled(database, worker_id):
    """Give the runs that a worker is asked to stop."""
    return [signal.run_id for signal in (await runs.look(database, worker_id)).signals]
