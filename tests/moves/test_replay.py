"""Replay and discard: what a person does with the dead."""

import msgspec
import pytest

from duly.domain.runs.outcome import Failed
from duly.domain.runs.retry import Retry
from duly.moves.cancel import CancelAnswer, cancel_run, carry_out
from duly.moves.dead import discard, replay
from duly.store.boxes import history, runs
from tests.builders import (
    RNG,
    a_dead_run,
    a_leased_run,
    a_ready_run,
    a_row,
    a_worker,
    boxes_of,
    claimed,
    counts,
    dead_listed,
    history_of,
    settled,
)
from tests.clock import START

TWICE = Retry(max_attempts=2, base_seconds=0, cap_seconds=0)


async def fail_until_dead(database, worker_id) -> int:
    """Let everything that is ready fail until it is dead. Gives the number of attempts."""
    attempts = 0
    while taken := await claimed(database, worker_id):
        for run in taken:
            attempts += 1
            await settled(database, worker_id, run, Failed("broken"))
    return attempts


async def test_a_replayed_run_is_ready_now_under_its_own_id(database, clock):
    run_id = await a_dead_run(database)
    await clock.advance(3600)

    assert await replay(database, [run_id]) == [run_id]

    row = await a_row(database, "ready", run_id)
    assert (row["due_at"], row["scheduled_at"], row["attempt"]) == (clock.at, START, 1)


async def test_numbers_go_on_and_a_new_set_of_attempts_is_given_each_time(database):
    worker_id = await a_worker(database)
    run_id = await a_ready_run(database, retry=TWICE)
    for life in range(3):
        assert await fail_until_dead(database, worker_id) == 2
        assert (await a_row(database, "dead", run_id))["replays"] == life
        await replay(database, [run_id])

    assert [number for number, _, _ in await history_of(database, run_id)] == [1, 2, 3, 4, 5, 6]


async def test_a_run_that_was_buried_as_poison_gets_a_new_chance_alone(database):
    run_id = await a_dead_run(database)
    await database.execute("update duly.dead set losses = 2, suspect = true, reason = 'poison'")

    await replay(database, [run_id])

    row = await a_row(database, "ready", run_id)
    assert (row["losses"], row["suspect"]) == (0, True), "what killed workers does not run beside others"


async def test_replayed_run_keeps_the_checkpoint_of_its_earlier_attempts(database):
    worker_id, run = await a_leased_run(database)
    await runs.save_checkpoint(database, run.run_id, run.fence, worker_id, '{"page": 9}')
    await settled(database, worker_id, run, Failed("broken", retryable=False))

    await replay(database, [run.run_id])

    assert await runs.checkpoints(database, [run.run_id]) == {run.run_id: '{"page": 9}'}


async def test_only_the_dead_can_be_replayed(database):
    alive = await a_ready_run(database)

    assert await replay(database, [alive, RNG.uuid()]) == []
    assert await counts(database) == {"ready": 1}


async def test_a_second_replay_finds_nothing_to_do(database):
    run_id = await a_dead_run(database)
    await replay(database, [run_id])

    assert await replay(database, [run_id]) == []
    assert await boxes_of(database, run_id) == ["ready"]


async def test_many_are_replayed_at_once(database):
    worker_id = await a_worker(database)
    dead = [await a_dead_run(database, worker_id) for _ in range(5)]

    assert set(await replay(database, dead)) == set(dead)
    assert await counts(database) == {"ready": 5}


async def test_discarded_run_is_removed_with_a_record(database):
    run_id = await a_dead_run(database)

    assert await discard(database, [run_id]) == [run_id]

    found = await runs.find(database, run_id)
    assert found is not None
    assert (found["state"], found["reason"]) == ("cancelled", "discarded")
    assert await counts(database) == {}
    assert await history.verify(database) == []


async def test_only_the_dead_can_be_discarded(database):
    alive = await a_ready_run(database)

    assert await discard(database, [alive]) == []
    assert await boxes_of(database, alive) == ["ready"]


@pytest.mark.parametrize("act", [replay, discard])
async def test_run_that_was_discarded_or_replayed_cannot_be_discarded(database, act):
    run_id = await a_dead_run(database)
    await act(database, [run_id])

    assert await discard(database, [run_id]) == []


async def test_the_dead_are_listed_newest_first(database, clock):
    worker_id = await a_worker(database)
    first = await a_dead_run(database, worker_id)
    await clock.advance(1)
    second = await a_dead_run(database, worker_id)

    listed = await dead_listed(database)

    assert [row["run_id"] for row in listed] == [second, first]
    assert await dead_listed(database, "queue:mail") == []
    assert await dead_listed(database, tenant=2) == []


async def test_a_cancel_that_came_too_late_does_not_follow_the_run_into_its_next_life(database):
    worker_id, run = await a_leased_run(database)
    assert await cancel_run(database, run.run_id) == CancelAnswer.REQUESTED
    await settled(database, worker_id, run, Failed("broken", retryable=False))

    await replay(database, [run.run_id])
    await carry_out(database)

    assert await boxes_of(database, run.run_id) == ["ready"]


async def test_at_a_rate_each_is_due_a_moment_after_the_one_before(database, clock):
    worker_id = await a_worker(database)
    run_ids = [await a_dead_run(database, worker_id) for _ in range(4)]

    assert set(await replay(database, run_ids, rate=0.25)) == set(run_ids)

    where = {run_id: await boxes_of(database, run_id) for run_id in run_ids}
    assert list(where.values()) == [["ready"], ["ready"], ["timers"], ["timers"]], (
        "what is due within the horizon is ready"
    )
    rows = [await a_row(database, box, run_id) for run_id, [box] in where.items()]
    assert [(row["due_at"] - clock.at).total_seconds() for row in rows] == [0, 4, 8, 12]
    assert [row["attempt"] for row in rows] == [1, 1, 1, 1]


async def test_replayed_run_resets_its_counters(database):
    run_id = await a_dead_run(database)
    await database.execute(
        "update duly.dead set options = $2::text::jsonb where run_id = $1",
        run_id,
        '{"retry": {}, "since": 1, "snoozes": 9, "probes": 3, "replays": 1}',
    )

    await replay(database, [run_id])

    options = (await a_row(database, "ready", run_id))["options"]
    assert msgspec.json.decode(options) == {"retry": {}, "replays": 1, "attempts_before": 1}
