"""Claim: a run is in one worker's hands, under a fence that only rises."""

from datetime import timedelta

import pytest

from duly.domain.errors import WorkerExpired
from duly.domain.runs.outcome import Failed
from duly.moves.claim import claim
from duly.moves.settle import hand_back
from duly.store.boxes import history, ready
from duly.store.connection.database import Database
from duly.store.tables import workers
from tests.builders import (
    BOTH_CLAIMS,
    HANDLER,
    LEASE,
    RNG,
    a_dead_run,
    a_leased_run,
    a_ready_run,
    a_row,
    a_worker,
    boxes_of,
    by_rank_alone,
    claimed,
    counts,
    history_of,
    seconds,
    settled,
    staged,
)
from tests.clock import START

pytestmark = [BOTH_CLAIMS, pytest.mark.usefixtures("way_to_claim")]


async def test_claimed_run_is_leased_to_the_worker_and_in_no_other_box(database):
    run_id = await a_ready_run(database, payload='{"n": 1}')
    worker_id = await a_worker(database)

    [run] = await claimed(database, worker_id)

    assert (run.run_id, run.attempt, run.payload) == (run_id, 1, '{"n": 1}')
    assert await boxes_of(database, run_id) == ["leased"]
    assert (await a_row(database, "leased", run_id))["worker_id"] == worker_id


async def test_a_run_is_claimed_once(database):
    await a_ready_run(database)
    first, second = await a_worker(database), await a_worker(database)

    assert len(await claimed(database, first)) == 1
    assert await claimed(database, second) == []


async def test_no_more_than_the_limit_is_claimed(database):
    for _ in range(5):
        await a_ready_run(database)
    worker_id = await a_worker(database)

    assert len(await claimed(database, worker_id, limit=3)) == 3
    assert await counts(database) == {"ready": 2, "leased": 3}


async def test_a_claim_locks_no_more_than_it_takes(database):
    for _ in range(5):
        await a_ready_run(database)
    first, second = await a_worker(database), await a_worker(database)

    async with database.transaction() as open_transaction:
        assert len(await claimed(open_transaction, first, limit=2)) == 2
        async with Database(database.url, clock=database.clock) as beside:
            assert len(await claimed(beside, second)) == 3


async def test_due_runs_and_runs_ahead_of_their_moment_are_claimed_where_there_is_room(database):
    due, ahead = await a_ready_run(database), await a_ready_run(database, delay=3)

    runs = await claimed(database, await a_worker(database), limit=2)

    assert {run.run_id for run in runs} == {due, ahead}


async def test_a_limit_smaller_than_the_number_of_queues_still_holds_and_each_queue_gets_its_turn(database):
    queues = ["a", "b", "c"]
    for queue in queues:
        await a_ready_run(database, queue=queue)
    worker_id = await a_worker(database, queues=queues)

    taken = [await claimed(database, worker_id, limit=1, queues=queues) for _ in range(3)]

    assert [len(runs) for runs in taken] == [1, 1, 1]
    assert {run.queue for [run] in taken} == set(queues)


async def test_a_flooded_queue_does_not_starve_another(database):
    for _ in range(10):
        await a_ready_run(database, queue="flood")
    single = await a_ready_run(database, queue="single")
    worker_id = await a_worker(database, queues=["flood", "single"])

    runs = await claimed(database, worker_id, limit=4, queues=["flood", "single"])

    assert single in {run.run_id for run in runs}
    assert len(runs) <= 4


async def test_runs_come_in_order_of_rank_whatever_order_they_were_submitted_in(database):
    low = await a_ready_run(database, priority=9)
    high = await a_ready_run(database, priority=0)
    middle = await a_ready_run(database, priority=5)
    worker_id = await a_worker(database)

    await by_rank_alone(database)
    order = [run.run_id for _ in range(3) for run in await claimed(database, worker_id, limit=1)]

    assert order == [high, middle, low]


async def test_thirty_seconds_of_age_make_up_for_one_priority(database, clock):
    old = await a_ready_run(database, priority=5)
    await clock.advance(30.001)
    new = await a_ready_run(database, priority=4)
    worker_id = await a_worker(database)

    await by_rank_alone(database)
    order = [run.run_id for _ in range(2) for run in await claimed(database, worker_id, limit=1)]

    assert order == [old, new]


async def test_a_low_priority_does_not_wait_on_an_idle_system(database):
    await a_ready_run(database, priority=9)

    assert len(await claimed(database, await a_worker(database))) == 1


async def test_claim_touches_only_the_requested_queues(database):
    await a_ready_run(database, queue="mail")

    assert await claimed(database, await a_worker(database)) == []


async def test_run_with_an_unknown_handler_stays_ready_and_is_named_unroutable(database):
    run_id = await a_ready_run(database, handler="unknown")
    worker_id = await a_worker(database)

    assert await claimed(database, worker_id) == []

    assert await boxes_of(database, run_id) == ["ready"]
    [named] = await ready.unroutable(database)
    assert (named["queue"], named["handler"], named["runs"], named["oldest_due_at"]) == ("default", "unknown", 1, START)


async def test_run_with_a_handler_of_a_live_worker_is_not_named_unroutable(database, clock):
    await a_ready_run(database)
    await a_worker(database)
    assert await ready.unroutable(database) == []

    await clock.advance(LEASE)

    assert len(await ready.unroutable(database)) == 1


async def test_queue_depth_lists_each_queue_with_its_oldest_run(database, clock):
    await a_ready_run(database, queue="mail")
    await clock.advance(3)
    await a_ready_run(database, queue="mail")
    await a_ready_run(database)

    assert [tuple(row.values()) for row in await ready.depth(database)] == [
        ("default", 1, clock.at),
        ("mail", 2, START),
    ]


class TestLease:
    async def test_unknown_worker_claims_nothing(self, database):
        run_id = await a_ready_run(database)

        with pytest.raises(WorkerExpired, match="has no live lease"):
            await claimed(database, RNG.uuid())

        assert await boxes_of(database, run_id) == ["ready"]

    async def test_expired_worker_claims_nothing_until_its_next_heartbeat(self, database, clock):
        await a_ready_run(database)
        worker_id = await a_worker(database)
        await clock.advance(LEASE)
        with pytest.raises(WorkerExpired):
            await claimed(database, worker_id)

        await workers.heartbeat(database, worker_id)

        assert len(await claimed(database, worker_id)) == 1

    async def test_heartbeat_extends_the_lease_for_any_duration_of_a_run(self, database, clock):
        worker_id, run = await a_leased_run(database)
        for _ in range(30):
            await clock.advance(LEASE / 3)
            assert await workers.heartbeat(database, worker_id) == clock.at

        assert await settled(database, worker_id, run) == []
        assert await history_of(database, run.run_id) == [(1, "succeeded", "succeeded")]

    async def test_heartbeat_of_an_unknown_worker_returns_none(self, database):
        assert await workers.heartbeat(database, RNG.uuid()) is None


class TestFence:
    async def test_story_07_fences_rise_over_hand_backs_retries_and_replays_by_any_worker(self, database, clock):
        run_id = await a_ready_run(database)
        one, other = await a_worker(database), await a_worker(database)
        fences = []
        for turn, worker_id in enumerate([one, other, one, other, one, other]):
            [run] = await claimed(database, worker_id)
            fences.append(run.fence)
            if turn % 2:
                await settled(database, worker_id, run, Failed("again", retry_after=seconds(0)))
                await clock.advance(timedelta(seconds=10))
                for live in (one, other):
                    await workers.heartbeat(database, live)
                await staged(database)
            else:
                await hand_back(database, worker_id, [run])

        assert fences == sorted(set(fences))
        assert await boxes_of(database, run_id) in (["ready"], ["timers"])

    async def test_story_07_fence_sequence_issues_one_number_at_a_time(self, database):
        assert await database.fetchval("select seqcache from pg_sequence where seqrelid = 'duly.fences'::regclass") == 1

    async def test_claim_draws_a_single_fence_for_all_its_runs(self, database):
        for _ in range(3):
            await a_ready_run(database)

        runs = await claimed(database, await a_worker(database))

        assert len({run.fence for run in runs}) == 1

    async def test_an_idle_poll_draws_no_fence_and_writes_nothing(self, database):
        worker_id = await a_worker(database)
        before = await database.fetchval("select last_value from duly.fences")

        assert await claimed(database, worker_id) == []

        assert await database.fetchval("select last_value from duly.fences") == before


class TestDuplicate:
    async def duplicate(self, database) -> tuple:
        """Put a run that is leased into ready once more, which no move does."""
        worker_id, run = await a_leased_run(database)
        await a_ready_run(database)
        other = await a_ready_run(database)
        await database.execute(
            "update duly.ready set run_id = $1, job_id = $1 where run_id = (select run_id from duly.ready where run_id <> $2)",
            run.run_id,
            other,
        )
        return worker_id, run, other

    async def test_story_02_a_duplicate_never_holds_up_the_queue(self, database):
        _, run, other = await self.duplicate(database)
        second = await a_worker(database)

        taken = [*await claimed(database, second), *await claimed(database, second)]

        assert [item.run_id for item in taken] == [other]
        assert await boxes_of(database, run.run_id) == ["leased"]
        assert await history_of(database, run.run_id) == [(0, "skipped", "running")]

    async def test_story_02_the_holder_of_the_first_one_settles_undisturbed(self, database):
        worker_id, run, _ = await self.duplicate(database)
        await claimed(database, await a_worker(database))

        assert await settled(database, worker_id, run) == []
        assert await boxes_of(database, run.run_id) == []

    async def test_retry_of_a_run_that_is_already_ready_is_still_settled(self, database):
        worker_id, run, _ = await self.duplicate(database)

        assert await settled(database, worker_id, run, Failed("again")) == []

        assert await boxes_of(database, run.run_id) == ["ready"]
        assert await history_of(database, run.run_id) == [(1, "failed", "retrying")]

    async def test_hand_back_of_a_run_that_is_already_ready_leaves_one_copy(self, database):
        worker_id, run, _ = await self.duplicate(database)

        await hand_back(database, worker_id, [run])

        assert await boxes_of(database, run.run_id) == ["ready"]


async def test_the_number_of_attempts_has_no_end_at_which_a_claim_breaks(database):
    run_id = await a_ready_run(database)
    await database.execute("update duly.ready set attempt = 40000 where run_id = $1", run_id)

    [run] = await claimed(database, await a_worker(database))

    assert run.attempt == 40_001


async def test_a_dead_run_is_not_claimed(database):
    await a_dead_run(database)

    assert await claimed(database, await a_worker(database)) == []
    assert await history.verify(database) == []


async def test_a_claim_takes_at_least_one(database):
    with pytest.raises(AssertionError):
        await claim(database, RNG.uuid(), ["default"], [HANDLER], 0)
