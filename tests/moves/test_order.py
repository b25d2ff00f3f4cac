"""The order of claims: shares of queues and tenants, priorities with a floor, what is due before what is ahead."""

from collections import Counter
from uuid import UUID

import pytest

from duly.domain.limits.pause import Scope
from duly.moves.admin.pause import pause_scope
from duly.store.boxes import history
from duly.store.tenancy import tenants
from duly.store.tenancy.tenants import Limits
from tests.builders import BOTH_CLAIMS, a_ready_run, a_worker, by_rank_alone, claimed, many_ready_runs

pytestmark = [BOTH_CLAIMS, pytest.mark.usefixtures("way_to_claim")]


def by_tenant(runs) -> dict[int, int]:
    return dict(Counter(run.tenant for run in runs))


def by_priority(runs) -> dict[int, int]:
    return dict(Counter(run.priority for run in runs))


class TestTenants:
    async def test_a_flood_of_one_leaves_the_others_their_share(self, database):
        await many_ready_runs(database, 5_000, tenant=1, late=600)
        await many_ready_runs(database, 1, tenant=2)
        await many_ready_runs(database, 30, tenant=3)

        runs = await claimed(database, await a_worker(database), limit=90)

        assert by_tenant(runs) == {1: 59, 2: 1, 3: 30}

    async def test_a_weight_is_a_share(self, database):
        for tenant in (1, 2):
            await many_ready_runs(database, 500, tenant=tenant)
        await tenants.set_limits(database, 2, Limits(weight=4))

        assert by_tenant(await claimed(database, await a_worker(database), limit=100)) == {1: 20, 2: 80}

    async def test_with_claims_of_one_another_tenants_single_run_is_not_behind_the_flood(self, database):
        """Each draw is even, so twenty in a row that miss it are one in a million; the seed is fixed besides."""
        await database.execute("select setval('duly.fences', 1000)")
        await many_ready_runs(database, 1_000, tenant=1, late=600)
        await many_ready_runs(database, 1, tenant=2)
        worker_id = await a_worker(database)

        taken = [await claimed(database, worker_id, limit=1) for _ in range(20)]

        assert all(len(runs) == 1 for runs in taken)
        assert 2 in {run.tenant for [run] in taken}

    async def test_over_a_thousand_claims_of_one_tenants_get_by_their_weights(self, database):
        """Due 250, 250 and 500; four standard deviations are 55 and 63."""
        await database.execute("select setval('duly.fences', 5000)")
        for tenant in (1, 2, 3):
            await many_ready_runs(database, 1_000, tenant=tenant, late=tenant * 100)
        await tenants.set_limits(database, 3, Limits(weight=2))
        worker_id = await a_worker(database)

        drawn = by_tenant([run for _ in range(1_000) for run in await claimed(database, worker_id, limit=1)])

        assert abs(drawn[1] - 250) < 55
        assert abs(drawn[2] - 250) < 55
        assert abs(drawn[3] - 500) < 63

    async def test_claims_reach_every_tenant_beyond_the_scan_limit(self, database):
        for tenant in range(1, 101):
            await many_ready_runs(database, 3, tenant=tenant)
        worker_id = await a_worker(database)

        round_once = [await claimed(database, worker_id, limit=16) for _ in range(4)]

        assert all(len(runs) == 16 for runs in round_once)
        served = set(by_tenant([run for runs in round_once for run in runs]))
        assert {(tenant - 1) // 10 for tenant in served} == set(range(10)), (
            "32 lines a claim: four go all the way round"
        )
        rest = [await claimed(database, worker_id, limit=16) for _ in range(16)]
        assert sum(map(len, rest)) == 300 - 4 * 16
        assert await claimed(database, worker_id, limit=16) == []

    async def test_a_held_tenant_takes_nothing_from_the_others(self, database):
        await many_ready_runs(database, 50, tenant=1)
        await many_ready_runs(database, 50, tenant=2)
        await pause_scope(database, Scope(tenant=1), reason="wait", paused_by="a test")

        assert by_tenant(await claimed(database, await a_worker(database), limit=20)) == {2: 20}

    async def test_runs_with_an_unknown_handler_leave_their_share_to_others(self, database):
        await many_ready_runs(database, 50, tenant=1, handler="unknown")
        await many_ready_runs(database, 50, tenant=2)

        assert by_tenant(await claimed(database, await a_worker(database), limit=20)) == {2: 20}


class TestQueues:
    async def test_queue_gets_the_share_of_its_weight(self, database):
        for queue in ("critical", "bulk"):
            await many_ready_runs(database, 500, queue=queue, late=10 if queue == "bulk" else 0)
        worker_id = await a_worker(database, queues=["critical", "bulk"])

        runs = await claimed(database, worker_id, limit=60, queues=["critical", "bulk"], weights=[5, 1])

        assert Counter(run.queue for run in runs) == {"critical": 50, "bulk": 10}

    async def test_queue_gets_the_share_that_another_queue_leaves_unused(self, database):
        await many_ready_runs(database, 3, queue="critical")
        await many_ready_runs(database, 500, queue="bulk")
        worker_id = await a_worker(database, queues=["critical", "bulk"])

        runs = await claimed(database, worker_id, limit=60, queues=["critical", "bulk"], weights=[5, 1])

        assert Counter(run.queue for run in runs) == {"critical": 3, "bulk": 57}


class TestPriorities:
    async def test_ninety_of_a_hundred_go_by_rank_and_ten_to_all_priorities_alike(self, database):
        await many_ready_runs(database, 500, priority=0)
        await many_ready_runs(database, 500, priority=9)

        assert by_priority(await claimed(database, await a_worker(database), limit=100)) == {0: 95, 9: 5}

    async def test_thirty_seconds_of_age_make_up_for_one_priority_in_a_batch(self, database):
        await many_ready_runs(database, 40, priority=5, late=31)
        await many_ready_runs(database, 500, priority=4)

        assert by_priority(await claimed(database, await a_worker(database), limit=100)) == {5: 40, 4: 60}

    async def test_the_backfill_lane_has_a_floor_as_well(self, database):
        await many_ready_runs(database, 500, priority=5)
        await many_ready_runs(database, 500, priority=105, late=2_900)

        assert by_priority(await claimed(database, await a_worker(database), limit=100)) == {5: 95, 105: 5}

    async def test_backfill_lane_of_any_age_does_not_starve_runs_that_are_on_time(self, database):
        await many_ready_runs(database, 500, priority=5)
        await many_ready_runs(database, 500, priority=105, late=90_000)

        assert by_priority(await claimed(database, await a_worker(database), limit=100)) == {105: 95, 5: 5}

    async def test_under_a_steady_flood_of_the_highest_the_lowest_is_claimed_within_its_floor(self, database, clock):
        """Claims of ten: one in two goes to the lowest, and so thirty runs of it are gone after some sixty claims."""
        await database.execute("select setval('duly.fences', 2000)")
        await many_ready_runs(database, 30, priority=9)
        worker_id = await a_worker(database)

        taken: Counter[int] = Counter()
        for _ in range(90):
            await many_ready_runs(database, 12, priority=0, late=1)
            taken += Counter(by_priority(await claimed(database, worker_id, limit=10)))

        assert taken[9] == 30
        assert taken[0] == 870

    async def test_unused_share_of_a_priority_goes_to_the_others(self, database):
        await many_ready_runs(database, 2, priority=0)
        await many_ready_runs(database, 3, priority=5)
        await many_ready_runs(database, 500, priority=9)

        assert by_priority(await claimed(database, await a_worker(database), limit=50)) == {0: 2, 5: 3, 9: 45}


class TestAheadOfDue:
    async def test_due_run_precedes_a_run_staged_ahead_whatever_the_priority(self, database):
        ahead = await a_ready_run(database, delay=3, priority=0)
        due = await a_ready_run(database, priority=9)
        await by_rank_alone(database)

        [run] = await claimed(database, await a_worker(database), limit=1)

        assert run.run_id == due != ahead

    async def test_tenant_with_due_runs_is_served_before_a_tenant_without(self, database):
        await many_ready_runs(database, 100, tenant=1, late=-3)
        await many_ready_runs(database, 30, tenant=2)

        assert by_tenant(await claimed(database, await a_worker(database), limit=40)) == {2: 30, 1: 10}

    async def test_runs_staged_ahead_are_shared_among_tenants(self, database):
        await many_ready_runs(database, 100, tenant=1, late=-3)
        await many_ready_runs(database, 100, tenant=2, late=-4)

        assert by_tenant(await claimed(database, await a_worker(database), limit=40)) == {1: 20, 2: 20}


@pytest.mark.parametrize("limit", [1, 3, 10, 1_000])
async def test_no_run_is_left_behind_and_none_is_taken_twice(database, limit):
    for tenant, priority, late in ((1, 0, 1), (1, 5, 40), (2, 5, -2), (2, 9, 0), (3, 105, 10)):
        for queue in ("a", "b"):
            await many_ready_runs(database, 7, tenant=tenant, priority=priority, late=late, queue=queue)
    worker_id = await a_worker(database, queues=["a", "b"])
    seen: list[UUID] = []

    while runs := await claimed(database, worker_id, limit=limit, queues=["a", "b"], weights=[3, 1]):
        assert len(runs) == min(limit, 70 - len(seen))
        seen += [run.run_id for run in runs]

    assert len(seen) == len(set(seen)) == 70
    assert await history.verify(database) == []
