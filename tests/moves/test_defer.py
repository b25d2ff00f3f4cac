"""Deferral: a run whose destination must not be called waits in `blocked`, its attempt unused and its keys' slots free."""

import pytest

from duly.domain.runs.outcome import WaitForDestination
from duly.moves.cancel import cancel_run
from duly.moves.defer import Deferred, defer
from duly.store.boxes import history
from tests.builders import (
    a_leased_run,
    a_ready_run,
    a_row,
    a_worker,
    an_active_schedule,
    boxes_of,
    claimed,
    counts,
    history_of,
    settled,
    staged,
)

ORIGIN = "https://hooks.example"


async def wait_for_destination(database, worker_id, run):
    await defer(database, worker_id, [Deferred(run, None, WaitForDestination(ORIGIN))])


async def release_destination_runs(database, limit: int = 100) -> int:
    [(moved,)] = await database.fetch("select duly.release_destination_runs(1, $1, $2)", ORIGIN, limit)
    return int(moved)


async def test_deferred_run_returns_unchanged(database):
    worker_id, run = await a_leased_run(database)
    await wait_for_destination(database, worker_id, run)

    assert await boxes_of(database, run.run_id) == ["blocked"]
    assert (await a_row(database, "blocked", run.run_id))["attempt"] == 0
    assert await history.verify(database) == []

    assert await release_destination_runs(database) == 1
    [again] = await claimed(database, worker_id)
    assert (again.run_id, again.attempt, again.due_at, again.payload) == (run.run_id, 1, run.due_at, run.payload)
    assert again.fence > run.fence
    assert await history_of(database, run.run_id) == []


async def test_release_takes_the_oldest_deferred_runs_up_to_its_limit(database, clock):
    worker_id = await a_worker(database)
    run_ids = []
    for _ in range(3):
        run_ids.append(await a_ready_run(database))
        await clock.advance(1)
    for run in await claimed(database, worker_id):
        await wait_for_destination(database, worker_id, run)

    assert await release_destination_runs(database, 2) == 2
    assert [await boxes_of(database, run_id) for run_id in run_ids] == [["ready"], ["ready"], ["blocked"]]


async def test_defer_ignores_a_run_that_is_already_settled(database):
    worker_id, run = await a_leased_run(database)
    await settled(database, worker_id, run)

    await wait_for_destination(database, worker_id, run)

    assert await counts(database) == {}


async def test_deferred_run_returns_its_slot_and_waits_for_a_slot_again(database):
    first, second = [await a_ready_run(database, concurrency=("customer-7", 1)) for _ in range(2)]
    worker_id = await a_worker(database)
    await staged(database)
    [run] = await claimed(database, worker_id)
    await wait_for_destination(database, worker_id, run)

    other = second if run.run_id == first else first
    assert await boxes_of(database, other) == ["ready"]
    assert await history.verify(database) == []

    await release_destination_runs(database)
    await staged(database)
    assert await boxes_of(database, run.run_id) == ["blocked"]
    assert await history.verify(database) == []

    [run] = await claimed(database, worker_id)
    await settled(database, worker_id, run)
    assert await boxes_of(database, run.run_id) == []
    assert await counts(database) == {"ready": 1}
    assert await history.verify(database) == []


@pytest.mark.parametrize("ending", ["cancelled", "succeeded"])
async def test_deferred_run_keeps_its_overlap_slot_until_it_ends(database, clock, ending):
    await an_active_schedule(database, every=60, overlap={"policy": "queue", "limit": 10})
    await clock.advance(60)
    await staged(database)
    worker_id = await a_worker(database)
    [run] = await claimed(database, worker_id)
    await wait_for_destination(database, worker_id, run)
    assert await history.verify(database) == []

    await clock.advance(60)
    await staged(database)
    assert (await counts(database))["blocked"] == 2
    assert "ready" not in await counts(database)

    if ending == "cancelled":
        assert await cancel_run(database, run.run_id)
    else:
        await release_destination_runs(database)
        worker_id = await a_worker(database)
        [run] = await claimed(database, worker_id)
        await settled(database, worker_id, run)
    assert (await counts(database))["ready"] == 1
    assert "blocked" not in await counts(database)
    assert await history.verify(database) == []


async def test_defer_ends_a_run_whose_cancel_is_pending(database):
    worker_id, run = await a_leased_run(database)
    await cancel_run(database, run.run_id)

    await wait_for_destination(database, worker_id, run)

    assert await counts(database) == {}
    assert [became for _, _, became in await history_of(database, run.run_id)] == ["cancelled"]
