"""Gates: at most so many runs of a name are ready or leased at once, and nobody waits at a gate with a free place."""

import asyncio
import json

import pytest

from duly.domain.runs.outcome import Cancelled, Failed, Lost, Snoozed, Succeeded
from duly.domain.runs.retry import Retry
from duly.moves.cancel import cancel_run
from duly.moves.claim import claim
from duly.moves.dead import replay
from duly.moves.settle import hand_back
from duly.store.boxes import history
from tests.builders import (
    HANDLER,
    QUEUE,
    a_ready_run,
    a_worker,
    an_active_schedule,
    blocks_read,
    boxes_of,
    claimed,
    counts,
    many_blocked_runs,
    seconds,
    settled,
    staged,
)

GATE = ("customer-7", 2)
NO_DELAY = Retry(max_attempts=3, base_seconds=0, cap_seconds=0)


async def five_at_the_gate(database):
    """Submit five runs of a gate with two places, and let them come to it."""
    run_ids = [await a_ready_run(database, concurrency=GATE, retry=NO_DELAY) for _ in range(5)]
    await staged(database)
    return run_ids


async def test_concurrency_key_admits_as_many_runs_as_it_has_slots(database):
    await five_at_the_gate(database)

    assert await counts(database) == {"blocked": 3, "ready": 2}
    assert await history.verify(database) == []


async def test_run_with_a_concurrency_key_takes_no_slot_before_it_is_due(database, clock):
    early = await a_ready_run(database, concurrency=("customer-7", 1), delay=3)
    late = await a_ready_run(database, concurrency=("customer-7", 1))

    await staged(database)
    assert (await boxes_of(database, early), await boxes_of(database, late)) == (["timers"], ["ready"])

    await clock.advance(3)
    await staged(database)
    assert await boxes_of(database, early) == ["blocked"]


@pytest.mark.parametrize(
    "outcome",
    [Succeeded(), Failed("broken", retryable=False), Cancelled(), Lost(), Failed("again"), Snoozed(seconds(60))],
)
async def test_freed_slot_admits_one_blocked_run_after_any_outcome(database, outcome):
    run_ids = await five_at_the_gate(database)
    waiting = [run_id for run_id in run_ids if await boxes_of(database, run_id) == ["blocked"]]
    worker_id = await a_worker(database)
    first, _ = await claimed(database, worker_id)

    await settled(database, worker_id, first, outcome)

    entered = [run_id for run_id in waiting if await boxes_of(database, run_id) == ["ready"]]
    assert len(entered) == 1
    assert await history.verify(database) == []


async def test_failed_run_waits_for_a_slot_again_before_its_retry(database):
    await five_at_the_gate(database)
    worker_id = await a_worker(database)
    first, second = await claimed(database, worker_id)

    await settled(database, worker_id, first, Failed("again"))
    await staged(database)

    assert await boxes_of(database, first.run_id) == ["blocked"]
    assert await boxes_of(database, second.run_id) == ["leased"]


async def test_concurrency_key_is_deleted_when_its_last_run_ends(database):
    await five_at_the_gate(database)
    worker_id = await a_worker(database)
    while taken := await claimed(database, worker_id):
        assert len(taken) <= 2
        for run in taken:
            await settled(database, worker_id, run)

    assert await counts(database) == {}
    assert await database.fetch("select from duly.concurrency_keys") == []


async def test_run_handed_back_keeps_its_slot(database):
    await five_at_the_gate(database)
    worker_id = await a_worker(database)
    taken = await claimed(database, worker_id)

    await hand_back(database, worker_id, taken)

    assert await counts(database) == {"blocked": 3, "ready": 2}
    assert await history.verify(database) == []


async def test_cancelled_run_frees_its_slot_and_a_blocked_run_frees_none(database):
    run_ids = await five_at_the_gate(database)
    slots_used = [run_id for run_id in run_ids if await boxes_of(database, run_id) == ["ready"]]
    outside = [run_id for run_id in run_ids if run_id not in slots_used]

    await cancel_run(database, outside[0])
    assert await counts(database) == {"blocked": 2, "ready": 2}

    await cancel_run(database, slots_used[0])
    assert await counts(database) == {"blocked": 1, "ready": 2}
    assert await history.verify(database) == []


async def test_replayed_dead_run_waits_for_its_concurrency_key_again(database):
    await five_at_the_gate(database)
    worker_id = await a_worker(database)
    first, _ = await claimed(database, worker_id)
    await settled(database, worker_id, first, Failed("broken", retryable=False))

    await replay(database, [first.run_id])
    await staged(database)

    assert await boxes_of(database, first.run_id) == ["blocked"]
    assert await history.verify(database) == []


async def test_run_without_a_concurrency_key_is_never_blocked(database):
    await five_at_the_gate(database)
    await a_ready_run(database)

    assert (await counts(database))["ready"] == 3


async def test_scheduled_run_acquires_its_concurrency_key_when_due(database, clock):
    submitted = await an_active_schedule(database, every=60)
    await database.execute('update duly.timers set options = \'{"concurrency": ["customer-7", 1]}\'')
    await staged(database)
    await clock.advance(1)
    await staged(database)
    [row] = await database.fetch("select job_id from duly.ready")

    assert row["job_id"] == submitted.job_id
    assert await history.verify(database) == []


async def test_simultaneous_ends_of_two_runs_admit_two_blocked_runs(database):
    """Each counts in the gate's own row: counting others after waiting for the lock would read an old snapshot."""
    await five_at_the_gate(database)
    worker_id = await a_worker(database)
    first, second = await claimed(database, worker_id)

    await asyncio.gather(settled(database, worker_id, first), settled(database, worker_id, second))

    assert await counts(database) == {"blocked": 1, "ready": 2}
    assert await history.verify(database) == []


async def test_story_05_run_that_arrives_while_the_last_slot_frees_is_admitted(database):
    """Whoever locks the gate last sees what the one before has done."""
    worker_id = await a_worker(database)
    for _ in range(10):
        await a_ready_run(database, concurrency=("customer-7", 1))
        await staged(database)
        [slots_used] = await claim(database, worker_id, [QUEUE], [HANDLER], 1)
        await a_ready_run(database, concurrency=("customer-7", 1))

        await asyncio.gather(staged(database), settled(database, worker_id, slots_used))

        assert await counts(database) == {"ready": 1}
        [follower] = await claimed(database, worker_id)
        await settled(database, worker_id, follower)


async def test_maintenance_admits_runs_left_blocked_at_a_free_slot(database):
    await five_at_the_gate(database)
    await database.execute("delete from duly.ready; update duly.concurrency_keys set active = 0")
    assert [row["broken"] for row in await history.verify(database)] == [
        "run waiting for a concurrency key with a free slot"
    ] * 3

    assert await history.release_waiting(database, 10) == 2
    assert await history.verify(database) == []


async def test_maintenance_skips_runs_blocked_otherwise_and_misses_no_concurrency_key(database):
    for kind in ("workflow", "destination", "rate"):
        await many_blocked_runs(database, 1_000, waits_for=kind, key="%s")
    for name in ("%", "'", "A", "a", "a\x01", "\x7f"):
        await many_blocked_runs(
            database, 1, key=name.replace("%", "%%"), options=json.dumps({"concurrency": [name, 1]})
        )

    assert await blocks_read(database, history.SQL["release_waiting"].replace("duly.release(", "num_nulls("), 10) < 200
    assert await history.release_waiting(database, 10) == 6
