"""Limits: how much is under way at once, by everybody together, changed while they claim."""

import asyncio
from collections import Counter
from uuid import UUID

import pytest

from duly.domain.errors import InvalidOption, NotFound, Refused
from duly.domain.limits.pause import TENANT_SCOPES_MAX, Scope
from duly.domain.targets.target import WORKFLOW
from duly.moves.admin.limit import limit, unlimit
from duly.moves.claim import claim
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.tables import limits
from tests.builders import (
    BOTH_CLAIMS,
    HANDLER,
    QUEUE,
    a_ready_run,
    a_worker,
    an_awaited_run,
    claimed,
    counts,
    many_ready_runs,
    settled,
    taken_on,
)

pytestmark = [BOTH_CLAIMS, pytest.mark.usefixtures("way_to_claim")]

EVERYTHING = Scope()


async def limited(database, slots, scope=EVERYTHING):
    return await limit(database, scope, slots, set_by="a test")


@pytest.mark.parametrize("scope", [Scope(), Scope(queue="default"), Scope(tenant=1), Scope(1, "default")])
async def test_limit_allows_no_more_leased_runs_than_slots(database, scope):
    await many_ready_runs(database, 20)
    await limited(database, 3, scope)
    worker_id = await a_worker(database)

    [first, *_] = taken = await claimed(database, worker_id)
    assert len(taken) == 3
    assert await claimed(database, worker_id) == []

    await settled(database, worker_id, first)
    assert len(await claimed(database, worker_id)) == 1
    [shown] = await limits.standing(database)
    assert (shown.scope, shown.running) == (scope, 3)


async def test_limit_applies_to_its_own_scope_only(database):
    await many_ready_runs(database, 20, tenant=1)
    await many_ready_runs(database, 20, tenant=2)
    await many_ready_runs(database, 20, tenant=2, queue="mail")
    await limited(database, 2, Scope(2, "default"))
    queues = ["default", "mail"]

    runs = await claimed(database, await a_worker(database, queues=queues), limit=60, queues=queues)

    assert Counter((run.tenant, run.queue) for run in runs) == {(1, "default"): 20, (2, "default"): 2, (2, "mail"): 20}


async def test_the_narrowest_of_several_limits_counts(database):
    for tenant in (1, 2, 3):
        await many_ready_runs(database, 20, tenant=tenant)
    await limited(database, 9)
    await limited(database, 8, Scope(queue="default"))
    await limited(database, 1, Scope(tenant=2))
    worker_id = await a_worker(database)

    runs = [*await claimed(database, worker_id, limit=5), *await claimed(database, worker_id, limit=50)]

    assert len(runs) == 8
    assert Counter(run.tenant for run in runs)[2] == 1
    assert await history.verify(database) == []


async def test_limit_divides_its_slots_among_tenants(database):
    await many_ready_runs(database, 500, tenant=1, late=600)
    await many_ready_runs(database, 500, tenant=2)
    await limited(database, 10)

    runs = await claimed(database, await a_worker(database), limit=10)

    assert Counter(run.tenant for run in runs) == {1: 5, 2: 5}


async def test_under_a_limit_nothing_is_taken_ahead_of_its_moment(database, clock):
    await many_ready_runs(database, 5, late=-3)
    await limited(database, 10)
    worker_id = await a_worker(database)

    assert await claimed(database, worker_id) == []
    await clock.advance(3.1)
    assert len(await claimed(database, worker_id)) == 5


async def test_lowered_limit_lets_leased_runs_finish_and_blocks_new_claims(database):
    await many_ready_runs(database, 20)
    worker_id = await a_worker(database)
    runs = await claimed(database, worker_id, limit=5)

    await limited(database, 2)
    assert await claimed(database, worker_id) == []
    assert await history.verify(database) == [], "they were under way before"

    for run in runs[:4]:
        await settled(database, worker_id, run)
    assert len(await claimed(database, worker_id)) == 1


async def test_a_limit_that_is_raised_or_removed_counts_at_the_next_claim(database):
    await many_ready_runs(database, 20)
    worker_id = await a_worker(database)
    await limited(database, 1)
    assert len(await claimed(database, worker_id)) == 1

    await limited(database, 4)
    assert len(await claimed(database, worker_id)) == 3

    await unlimit(database, EVERYTHING)
    assert len(await claimed(database, worker_id)) == 16


async def test_run_awaiting_its_receiver_counts_against_the_limit(database):
    await an_awaited_run(database)
    await many_ready_runs(database, 5)
    await limited(database, 2)

    assert len(await claimed(database, await a_worker(database))) == 1


async def test_run_awaiting_its_workflow_leaves_its_slot_to_the_nodes(database, clock):
    await limited(database, 1)
    await clock.advance(6)
    await a_ready_run(database, handler=WORKFLOW)
    worker_id = await a_worker(database, handlers=[WORKFLOW, HANDLER])
    [run] = await claim(database, worker_id, [QUEUE], [WORKFLOW], 1)
    await taken_on(database, worker_id, run)
    await many_ready_runs(database, 2)

    assert len(await claimed(database, worker_id)) == 1
    [shown] = await limits.standing(database)
    assert shown.running == 1
    assert await history.verify(database) == []


# What no claim does: it takes what is ready without a look at the limits.
PAST_ALL_LIMITS = """
with taken as (delete from duly.ready returning *)
insert into duly.leased (run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority,
                         losses, suspect, payload_stored, queue, handler, payload, options, fence, worker_id, claimed_at)
select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt + 1, priority, losses,
       suspect, payload_stored, queue, handler, payload, options, nextval('duly.fences'), $1, duly.clock_now() from taken
"""


async def test_verify_reports_an_exceeded_limit(database, clock):
    await limited(database, 1)
    await clock.advance(6)
    await many_ready_runs(database, 2)
    worker_id = await a_worker(database)
    await claimed(database, worker_id)
    await database.execute(PAST_ALL_LIMITS, worker_id)

    [broken] = await history.verify(database)

    assert (broken["broken"], broken["id"], broken["detail"]) == ("limit exceeded", "every queue", "1 slots, 2 runs")


async def test_a_limit_that_cannot_be_is_refused(database):
    with pytest.raises(InvalidOption, match=r"slots 0 is outside 1 to 1,000,000; .*pause"):
        await limited(database, 0)
    with pytest.raises(InvalidOption, match="tenant 0 is not the number of a tenant"):
        await limited(database, 1, Scope(tenant=0))
    with pytest.raises(NotFound, match="no limit of queue mail; `duly limits`"):
        await unlimit(database, Scope(queue="mail"))


async def test_a_tenant_has_so_many_limits_and_no_more(database):
    for number in range(TENANT_SCOPES_MAX):
        await limited(database, 1, Scope(1, f"queue {number}"))

    with pytest.raises(Refused, match=f"queue one more of tenant 1 cannot have a limit: {TENANT_SCOPES_MAX} "):
        await limited(database, 1, Scope(1, "one more"))
    await limited(database, 2, Scope(1, "queue 7"))
    await limited(database, 1, Scope(2, "one more"))


@pytest.mark.parametrize("scope", [Scope(), Scope(tenant=2), Scope(2, "default")])
async def test_concurrent_claims_never_exceed_the_limit(database, database_url, scope):
    """Eight connections claim and settle as fast as they can, and after each claim the whole is counted in one snapshot."""
    slots, wanted = 5, 400
    await many_ready_runs(database, wanted, tenant=2, late=5)
    await limited(database, slots, scope)
    most, done = 0, 0

    async def work(number: int) -> None:
        nonlocal most, done
        async with Database(database_url, size_max=1, clock=database.clock) as mine:
            worker_id: UUID = await a_worker(mine)
            while done < wanted:
                runs = await claim(mine, worker_id, ["default"], [HANDLER], 1 + number % 4)
                most = max(most, await mine.fetchval("select count(*) from duly.leased"))
                for run in runs:
                    await settled(mine, worker_id, run)
                    done += 1
                await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await asyncio.gather(*map(work, range(8)))

    assert most == slots, "all places are used, and no more"
    assert await counts(database) == {}
