"""Unroutable runs: still ready, not in the way of claims, and claimable as soon as a worker has their handler."""

from datetime import timedelta
from uuid import UUID

import pytest

from duly.domain.runs.outcome import Failed
from duly.domain.runs.retry import Retry
from duly.moves.cancel import cancel_run
from duly.moves.claim import claim
from duly.moves.settle import hand_back
from duly.moves.unroutable import FIRST, UnroutableLimits, mark_unroutable, restore_routable
from duly.moves.waiting import expire
from duly.store.boxes import ready
from duly.store.boxes.history import verify
from duly.store.boxes.ready import depth, unroutable
from duly.store.connection.session import Sessions
from duly.store.tables import remote_workers
from tests.builders import (
    BOTH_CLAIMS,
    HANDLER,
    QUEUE,
    a_ready_run,
    a_worker,
    boxes_of,
    claimed,
    counts,
    history_of,
    many_ready_runs,
    settled,
    staged,
)

pytestmark = [BOTH_CLAIMS, pytest.mark.usefixtures("way_to_claim")]

TYPO = "app:typo"
FEW = UnroutableLimits(runs=3, runs_more=2, looks=6)


async def aside(database) -> int:
    """Count what stands aside."""
    return int(await database.fetchval("select count(*) from duly.ready where is_unroutable"))


async def strangers(database, number=3, **more) -> list[UUID]:
    """Submit runs of a handler that nobody knows."""
    return [await a_ready_run(database, handler=TYPO, **more) for _ in range(number)]


async def all_aside(database, crowd=FEW) -> int:
    """Set aside until there is nothing more to set aside."""
    total, moved, line = 0, 1, FIRST
    while moved:
        moved, line = await mark_unroutable(database, crowd, line)
        total += moved
    return total


class TestMarkUnroutable:
    async def test_backlog_ahead_of_a_routable_run_is_marked_unroutable(self, database):
        worker_id = await a_worker(database)
        await strangers(database)
        known = await a_ready_run(database)

        assert await mark_unroutable(database, FEW) == (3, (QUEUE, 1, 5))

        assert await aside(database) == 3
        assert [run.run_id for run in await claimed(database, worker_id)] == [known]

    async def test_fewer_are_left_where_they_are(self, database):
        await a_worker(database)
        await strangers(database, 2)

        assert await mark_unroutable(database, FEW) == (0, FIRST)

    async def test_mark_unroutable_needs_fewer_runs_when_some_are_marked_already(self, database):
        await a_worker(database)
        await strangers(database)
        await all_aside(database)

        await strangers(database, 1)
        assert await all_aside(database) == 0
        await strangers(database, 1)
        assert await all_aside(database) == 2

    async def test_unroutable_runs_of_another_tenant_do_not_lower_the_threshold(self, database):
        await a_worker(database)
        await many_ready_runs(database, 3, handler=TYPO, tenant=2)
        assert await all_aside(database) == 3

        await strangers(database, 2)

        assert await all_aside(database) == 0

    async def test_backlog_whose_first_run_is_routable_is_not_searched(self, database, clock):
        await a_worker(database)
        await a_ready_run(database)
        await clock.advance(0.001)
        await strangers(database, 10)

        assert await all_aside(database) == 0, "a claim has nothing to walk over"

    async def test_routable_runs_at_the_front_of_a_backlog_are_not_marked(self, database, clock):
        await a_worker(database)
        for number in range(10):
            await a_ready_run(database, handler=HANDLER if number % 3 == 1 else TYPO)
            await clock.advance(0.001)

        assert await all_aside(database) == 4, "of the first six; then the first is known"
        assert (
            await database.fetchval("select count(*) from duly.ready where is_unroutable and handler <> $1", TYPO) == 0
        )

    async def test_runs_of_an_unserved_queue_are_not_marked(self, database):
        await a_worker(database, queues=["other"], handlers=[HANDLER])
        await strangers(database)

        assert await all_aside(database) == 0

    async def test_backlogs_of_unserved_queues_do_not_count_as_searched(self, database):
        await a_worker(database)
        for number in range(25):
            await strangers(database, 1, queue=f"a{number}")
        await strangers(database)

        assert (await mark_unroutable(database, FEW))[0] == 3, "in one step, which looks into twenty lines at most"

    async def test_run_stays_routable_while_a_worker_of_its_queue_has_the_handler(self, database):
        await a_worker(database)
        await a_worker(database, handlers=[TYPO])
        await strangers(database)

        assert await all_aside(database) == 0

    async def test_a_worker_of_another_queue_that_knows_it_does_not(self, database):
        await a_worker(database)
        await a_worker(database, queues=["other"], handlers=[TYPO])
        await strangers(database)

        assert await all_aside(database) == 3

    async def test_handler_of_an_expired_worker_makes_no_run_routable(self, database, clock):
        await a_worker(database, handlers=[TYPO], lease=timedelta(seconds=5))
        await a_worker(database, lease=timedelta(hours=1))
        await strangers(database)
        await clock.advance(5)

        assert await all_aside(database) == 3

    async def test_targets_are_handlers_and_stay_in_line_where_somebody_has_them(self, database):
        await a_worker(database, handlers=["@webhook", "@command"])
        for target in ("@webhook", "@command", "@container"):
            await many_ready_runs(database, 5, handler=target)

        assert await all_aside(database, UnroutableLimits(runs=3, runs_more=2, looks=20)) == 0, "its first run is known"
        await database.execute("delete from duly.ready where handler <> '@container'")
        assert await all_aside(database) == 5, "nobody here has a container runtime"

    async def test_mark_unroutable_visits_every_subqueue_in_order(self, database):
        await a_worker(database)
        for tenant in range(1, 6):
            await many_ready_runs(database, 1, tenant=tenant)
        await many_ready_runs(database, 3, tenant=6, handler=TYPO)

        step = UnroutableLimits(runs=3, runs_more=2, looks=6, subqueues=3)
        moved, line = await mark_unroutable(database, step)
        assert (moved, line) == (0, (QUEUE, 4, 5))
        assert await mark_unroutable(database, step, line) == (3, (QUEUE, 6, 5))
        assert await mark_unroutable(database, step, (QUEUE, 6, 5)) == (0, FIRST)

    async def test_mark_unroutable_scans_at_most_twenty_subqueues_a_step(self, database):
        await a_worker(database)
        for tenant in range(1, 24):
            await many_ready_runs(database, 2, tenant=tenant, handler=TYPO)
        await many_ready_runs(database, 3, tenant=24, handler=TYPO)

        moved, line = await mark_unroutable(database, FEW)
        assert (moved, line) == (0, (QUEUE, 21, 5))
        assert await mark_unroutable(database, FEW, line) == (3, (QUEUE, 24, 5))

    async def test_mark_unroutable_starts_at_a_thousand_runs(self, database):
        await a_worker(database)
        await many_ready_runs(database, 999, handler=TYPO)
        assert await mark_unroutable(database, UnroutableLimits()) == (0, FIRST)

        await many_ready_runs(database, 1, handler=TYPO)
        assert (await mark_unroutable(database, UnroutableLimits()))[0] == 1_000

    async def test_mark_unroutable_moves_runs_in_batches(self, database):
        await a_worker(database)
        await many_ready_runs(database, 4_500, handler=TYPO)

        moved = [(await mark_unroutable(database, UnroutableLimits()))[0] for _ in range(4)]

        assert moved == [2_000, 2_000, 500, 0]

    async def test_locked_run_is_not_marked_unroutable(self, database):
        await a_worker(database)
        first, *_ = await strangers(database, 4)
        async with database.transaction() as other:
            await other.execute("select from duly.ready where run_id = $1 for update", first)

            assert (await mark_unroutable(database, FEW))[0] == 3

        assert await database.fetchval("select is_unroutable from duly.ready where run_id = $1", first) is False


class TestStillReady:
    """Nothing but a claim can tell the difference."""

    async def test_unroutable_run_remains_counted_named_and_ready(self, database):
        await a_worker(database)
        run_id, *_ = await strangers(database)
        before = await depth(database), await unroutable(database)

        await all_aside(database)

        assert (await depth(database), await unroutable(database)) == before
        assert await boxes_of(database, run_id) == ["ready"]
        assert await verify(database) == []

    async def test_unroutable_run_can_be_cancelled(self, database):
        await a_worker(database)
        run_id, *_ = await strangers(database)
        await all_aside(database)

        await cancel_run(database, run_id)

        assert await history_of(database, run_id) == [(0, "cancelled", "cancelled")]
        assert await counts(database) == {"ready": 2}

    async def test_unroutable_run_expires(self, database, clock):
        await a_worker(database, lease=timedelta(hours=1))
        await strangers(database, expires_after=60)
        await all_aside(database)
        await clock.advance(61)

        assert await expire(database) == 3

    async def test_unroutable_run_keeps_its_slot_until_it_ends(self, database):
        await a_worker(database)
        await strangers(database, 3, concurrency=("door", 1))
        await staged(database)
        await strangers(database, 2)
        assert await all_aside(database) == 3
        inside = await database.fetchval("select run_id from duly.ready where options ? 'concurrency'")

        await cancel_run(database, inside)

        assert await counts(database) == {"ready": 3, "blocked": 1}
        assert await verify(database) == []

    async def test_run_handed_back_is_no_longer_marked_unroutable(self, database):
        await a_worker(database)
        await strangers(database)
        await all_aside(database)
        knowing = await a_worker(database, handlers=[TYPO])
        [run, *_] = await claim(database, knowing, [QUEUE], [TYPO], 1)

        await hand_back(database, knowing, [run])

        assert await database.fetchval("select is_unroutable from duly.ready where run_id = $1", run.run_id) is False

    async def test_retried_run_is_no_longer_marked_unroutable(self, database):
        await a_worker(database)
        retry = Retry(max_attempts=3, base_seconds=0, cap_seconds=0)
        await strangers(database, retry=retry)
        await all_aside(database)
        knowing = await a_worker(database, handlers=[TYPO])
        [run] = await claim(database, knowing, [QUEUE], [TYPO], 1)

        await settled(database, knowing, run, Failed("again"))

        assert await database.fetchval("select is_unroutable from duly.ready where run_id = $1", run.run_id) is False


class TestBringBack:
    async def test_a_worker_that_knows_them_has_them_with_its_first_claim(self, database):
        await a_worker(database)
        run_ids = await strangers(database)
        await all_aside(database)
        knowing = await a_worker(database, handlers=[TYPO])

        taken = await claim(database, knowing, [QUEUE], [TYPO], 10)

        assert {run.run_id for run in taken} == set(run_ids)

    async def test_claim_restores_twice_as_many_runs_as_it_takes_oldest_first(self, database):
        await a_worker(database)
        await many_ready_runs(database, 1_000, handler=TYPO)
        assert await all_aside(database, UnroutableLimits()) == 1_000
        knowing = await a_worker(database, handlers=[TYPO])
        oldest = await database.fetch("select run_id from duly.ready order by due_at limit 200")

        taken = await claim(database, knowing, [QUEUE], [TYPO], 200)

        assert {run.run_id for run in taken} == {row[0] for row in oldest}
        assert await aside(database) == 600

    async def test_a_claim_of_one_brings_back_a_hundred(self, database):
        await a_worker(database)
        await many_ready_runs(database, 1_000, handler=TYPO)
        await all_aside(database, UnroutableLimits())

        await claim(database, await a_worker(database, handlers=[TYPO]), [QUEUE], [TYPO], 1)

        assert await aside(database) == 900

    async def test_a_worker_that_does_not_know_them_leaves_them(self, database):
        worker_id = await a_worker(database)
        await strangers(database)
        await all_aside(database)

        assert await claimed(database, worker_id) == []
        assert await aside(database) == 3

    async def test_restored_runs_are_shared_among_tenants_and_priorities(self, database):
        await a_worker(database)
        for tenant, priority, runs in ((1, 5, 4_000), (2, 5, 1_500), (2, 9, 1_000)):
            await many_ready_runs(database, runs, tenant=tenant, priority=priority, handler=TYPO)
        await all_aside(database, UnroutableLimits())
        await a_worker(database, handlers=[TYPO])

        assert await ready.restore_routable(database, 300) == 300

        rows = await database.fetch(
            "select tenant, priority, count(*) from duly.ready where not is_unroutable group by 1, 2"
        )
        assert {(row[0], row[1]): row[2] for row in rows} == {(1, 5): 100, (2, 5): 100, (2, 9): 100}

    async def test_maintenance_restores_only_runs_with_a_handler_of_a_live_worker(self, database, clock):
        await a_worker(database, lease=timedelta(hours=1))
        await strangers(database)
        for _ in range(3):
            await a_ready_run(database, handler="app:other")
        await all_aside(database)
        assert await restore_routable(database) == 0

        await a_worker(database, handlers=[TYPO], lease=timedelta(seconds=5))
        assert await restore_routable(database) == 3
        await all_aside(database)
        await clock.advance(5)
        assert await all_aside(database) == 3
        assert await restore_routable(database) == 0, "it is dead"
        await a_worker(database, queues=["elsewhere"], handlers=[TYPO])
        assert await restore_routable(database) == 0, "it serves another queue"

    async def test_routable_runs_are_restored_even_beyond_the_named_kinds(self, database):
        await a_worker(database)
        await many_ready_runs(database, 1_001, handler=TYPO)
        await database.execute(
            "update duly.ready set is_unroutable = true, handler = 'kind ' || number"
            "  from (select run_id, row_number() over () as number from duly.ready) as named where named.run_id = ready.run_id"
        )
        assert await restore_routable(database) == 0

        await a_worker(database, handlers=["kind 1", "kind 1000", "kind 999", "kind 77"], queues=["other", QUEUE])

        assert await restore_routable(database) == 4

    async def test_locked_run_is_restored_later(self, database):
        await a_worker(database)
        first, *_ = await strangers(database)
        await all_aside(database)
        await a_worker(database, handlers=[TYPO])
        async with database.transaction() as other:
            await other.execute("select from duly.ready where run_id = $1 for update", first)
            assert await restore_routable(database) == 2

        assert await restore_routable(database) == 1

    async def test_a_held_queue_is_left_as_it_is(self, database):
        await a_worker(database)
        await strangers(database)
        await all_aside(database)
        await database.execute(
            "insert into duly.pauses (queue, reason, paused_by, paused_at) values ($1, '', '', now())", QUEUE
        )

        assert await claim(database, await a_worker(database, handlers=[TYPO]), [QUEUE], [TYPO], 10) == []
        assert await aside(database) == 3

    async def test_verify_finds_a_run_unroutable_long_after_a_worker_has_its_handler(self, database, clock):
        await a_worker(database, lease=timedelta(hours=1))
        await strangers(database, 1)
        await database.execute("update duly.ready set is_unroutable = true")
        await a_worker(database, handlers=[TYPO], lease=timedelta(hours=1))
        await clock.advance(299)
        assert await verify(database) == []

        await clock.advance(2)

        [found] = await verify(database)
        assert found["broken"] == "unroutable run although a worker has its handler"
        assert found["detail"] == f"{TYPO} in queue {QUEUE}"


class TestOverHttp:
    """Workers that belong to a tenant know its runs alone."""

    async def a_remote(self, database, handlers, tenant=2) -> UUID:
        """Register a worker of a tenant."""
        worker_id = await a_worker(database, handlers=handlers)
        await database.execute("update duly.workers set tenant = $2 where worker_id = $1", worker_id, tenant)
        return worker_id

    async def test_run_known_only_to_another_tenants_worker_is_marked_unroutable(self, database):
        await a_worker(database)
        await many_ready_runs(database, 3, handler=TYPO, tenant=2)
        await many_ready_runs(database, 3, handler=TYPO, tenant=3)
        await self.a_remote(database, [TYPO], tenant=2)

        assert await all_aside(database) == 3
        assert await database.fetchval("select bool_and(is_unroutable = (tenant = 3)) from duly.ready")

    async def test_remote_worker_restores_and_claims_its_tenants_runs_alone(self, database):
        await a_worker(database)
        for tenant in (2, 3):
            await many_ready_runs(database, 3, handler=TYPO, tenant=tenant)
        await all_aside(database)
        worker_id = await self.a_remote(database, [TYPO])

        assert await remote_workers.foresee(database, worker_id, 2) == 0
        async with Sessions(database) as sessions, sessions.open(2) as session:
            taken = await remote_workers.claim(session, worker_id, 1, 10)

        assert [lent.run.tenant for lent in taken] == [2, 2, 2]
        assert await database.fetchval("select count(*) from duly.ready where is_unroutable and tenant = 3") == 3

    async def test_remote_worker_without_the_handler_foresees_no_run(self, database):
        await a_worker(database)
        await many_ready_runs(database, 3, handler=TYPO, tenant=2)
        worker_id = await self.a_remote(database, [HANDLER])
        await all_aside(database)

        assert await remote_workers.foresee(database, worker_id, 2) is None

    async def test_maintenance_brings_back_its_tenants_runs_alone(self, database):
        await a_worker(database)
        for tenant in (2, 3):
            await many_ready_runs(database, 3, handler=TYPO, tenant=tenant)
        await all_aside(database)
        await self.a_remote(database, [TYPO])

        assert await restore_routable(database) == 3
