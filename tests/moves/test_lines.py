"""Lines: the runs of a FIFO key go one after another, in order, whoever brings them, and whatever becomes of each."""

import asyncio
import random
from typing import Any

import pytest

from duly.domain.runs.options import options_of
from duly.domain.runs.outcome import Cancelled, Failed, Lost, Snoozed, Succeeded, WaitForDestination
from duly.domain.runs.retry import Retry
from duly.moves.cancel import cancel_run
from duly.moves.dead import replay
from duly.moves.defer import Deferred, defer
from duly.moves.settle import hand_back
from duly.moves.stage import stage
from duly.moves.submit import submit_many
from duly.moves.waiting import expire
from duly.store.boxes import history
from duly.store.tables import shards
from tests.builders import (
    a_key,
    a_ready_run,
    a_scheduler,
    a_submission,
    a_worker,
    an_active_schedule,
    boxes_of,
    claimed,
    counts,
    hold,
    seconds,
    settled,
    staged,
)

LINE = "orders"
ORIGIN = "https://hooks.example"
NO_DELAY = Retry(max_attempts=3, base_seconds=0, cap_seconds=0)
IN_LINE = options_of(concurrency=(LINE, 1), fifo=True)


async def a_line(database, number=4, **more):
    """Submit runs of one line in a batch, and let them come to it. Gives them in order."""
    jobs = [a_submission(fifo=LINE, retry=NO_DELAY, **more) for _ in range(number)]
    submitted = await submit_many(database, jobs, key=a_key())
    await staged(database)
    return [one.job_id for one in submitted]


async def served(database, worker_id):
    """Claim and settle until nothing is left. Gives the runs as they started."""
    order = []
    while taken := await claimed(database, worker_id):
        for run in taken:
            order.append(run.run_id)
            await settled(database, worker_id, run)
    return order


async def test_the_runs_of_a_batch_go_in_the_order_of_its_lines(database):
    run_ids = await a_line(database, 20)
    assert await counts(database) == {"blocked": 19, "ready": 1}

    assert await served(database, await a_worker(database)) == run_ids
    assert await history.verify(database) == []
    assert await database.fetch("select from duly.concurrency_keys") == []


async def test_fifo_order_puts_the_due_time_before_the_sequence_number(database, clock):
    late = await a_ready_run(database, fifo=LINE, delay=2)
    early = await a_ready_run(database, fifo=LINE, delay=1)
    await clock.advance(3)
    await staged(database)

    assert await served(database, await a_worker(database)) == [early, late]


@pytest.mark.parametrize("outcome", [Succeeded(), Failed("broken", retryable=False), Cancelled()])
async def test_the_next_one_starts_when_the_former_has_come_to_its_end(database, outcome):
    first, second, *_ = await a_line(database)
    worker_id = await a_worker(database)
    [run] = await claimed(database, worker_id)
    assert run.run_id == first

    await settled(database, worker_id, run, outcome)

    assert await boxes_of(database, second) == ["ready"]
    assert await history.verify(database) == []


@pytest.mark.parametrize("outcome", [Failed("again"), Lost(), Snoozed(seconds(60))])
async def test_retried_run_keeps_its_fifo_slot(database, clock, outcome):
    run_ids = await a_line(database)
    worker_id = await a_worker(database)
    [run] = await claimed(database, worker_id)

    await settled(database, worker_id, run, outcome)
    await staged(database)
    assert (await counts(database))["blocked"] == 3, "nobody else is let in"
    assert await history.verify(database) == []

    await clock.advance(61)
    await staged(database)
    assert await served(database, await a_worker(database)) == run_ids


async def test_run_handed_back_keeps_its_slot(database):
    run_ids = await a_line(database)
    worker_id = await a_worker(database)
    await hand_back(database, worker_id, await claimed(database, worker_id))

    assert await counts(database) == {"blocked": 3, "ready": 1}
    assert await served(database, worker_id) == run_ids


async def test_run_deferred_for_its_destination_keeps_its_fifo_slot(database):
    run_ids = await a_line(database)
    worker_id = await a_worker(database)
    [run] = await claimed(database, worker_id)

    await defer(database, worker_id, [Deferred(run, None, WaitForDestination(ORIGIN))])
    await staged(database)
    assert await counts(database) == {"blocked": 4}, "nobody else is let in"
    assert await history.verify(database) == []

    await database.execute("select duly.release_destination_runs(1, $1, 100)", ORIGIN)
    assert await served(database, worker_id) == run_ids


async def test_a_dead_run_that_is_replayed_lines_up_anew(database, clock):
    first, *others = await a_line(database)
    worker_id = await a_worker(database)
    [run] = await claimed(database, worker_id)
    await settled(database, worker_id, run, Failed("broken", retryable=False))
    await clock.advance(1)

    await replay(database, [first])
    await staged(database)

    assert await served(database, worker_id) == [*others, first]
    assert await history.verify(database) == []


@pytest.mark.parametrize("place", [0, 1, 3])
async def test_a_cancelled_run_leaves_the_line_and_the_others_go_on(database, place):
    run_ids = await a_line(database)
    await cancel_run(database, run_ids[place])

    left = [run_id for run_id in run_ids if run_id != run_ids[place]]
    assert await served(database, await a_worker(database)) == left
    assert await history.verify(database) == []


async def apart(database):
    """Submit two runs of a line that lie with two schedulers. Gives the runs, and the schedulers with their shards."""
    left, _ = await a_scheduler(database)
    right, right_epochs = await a_scheduler(database)
    left_epochs = await hold(database, left)
    right_epochs = await hold(database, right)
    assert len(left_epochs) + len(right_epochs) == shards.SHARDS
    jobs = [a_submission(fifo=LINE) for _ in range(shards.SHARDS)]
    run_ids = [one.job_id for one in await submit_many(database, jobs, key=a_key())]
    first = next(run_id for run_id in run_ids if (run_id.bytes[15] & 63) in left_epochs)
    second = next(run_id for run_id in run_ids if run_id > first and (run_id.bytes[15] & 63) in right_epochs)
    await database.execute("delete from duly.timers where run_id <> all ($1)", [first, second])
    return first, second, (left, left_epochs), (right, right_epochs)


async def test_the_later_one_does_not_enter_while_the_earlier_one_is_with_another_scheduler(database):
    first, second, left, right = await apart(database)

    await stage(database, *right)
    assert (await boxes_of(database, first), await boxes_of(database, second)) == (["timers"], ["blocked"])
    assert await history.verify(database) == []
    assert await history.release_waiting(database, 10) == 0

    await stage(database, *left)
    assert (await boxes_of(database, first), await boxes_of(database, second)) == (["ready"], ["blocked"])
    assert await served(database, await a_worker(database)) == [first, second]


async def test_when_the_earlier_one_is_cancelled_in_its_timer_the_later_one_enters_at_once(database):
    first, second, _, right = await apart(database)
    await stage(database, *right)

    await cancel_run(database, first)

    assert await boxes_of(database, second) == ["ready"]


async def test_when_the_earlier_one_expires_in_its_timer_the_later_one_enters_at_once(database, clock):
    first, second, _, right = await apart(database)
    await database.execute(
        "update duly.timers set options = options || jsonb_build_object('expires_seconds', 1) where run_id = $1", first
    )
    await stage(database, *right)
    await clock.advance(2)

    assert await expire(database) == 1

    assert (await boxes_of(database, first), await boxes_of(database, second)) == ([], ["ready"])
    assert await history.verify(database) == []


@pytest.mark.parametrize("first", ["of the line", "others"])
async def test_concurrency_key_shared_with_a_fifo_run_has_one_slot(database, first):
    line, others = [a_submission(fifo=LINE)], [a_submission(concurrency=(LINE, 3)) for _ in range(3)]
    worker_id = await a_worker(database)
    for jobs in (line, others) if first == "of the line" else (others, line, others):
        await submit_many(database, jobs, key=a_key())
        await staged(database)
    if first == "others":
        inside = await claimed(database, worker_id)
        assert len(inside) == 3
        for run in inside:
            await settled(database, worker_id, run)

    [alone] = await claimed(database, worker_id)
    assert alone.policy.fifo
    assert await history.release_waiting(database, 10) == 0

    await settled(database, worker_id, alone)
    assert len(await claimed(database, worker_id)) == 3, "the line is empty, and they have their places again"
    assert await history.verify(database) == []


async def test_batches_of_one_change_nothing_about_the_order(database):
    jobs = [a_submission(fifo=LINE) for _ in range(30)]
    run_ids = [one.job_id for one in await submit_many(database, jobs, key=a_key())]
    worker_id = await a_worker(database)
    order = []
    for _ in range(60):
        await staged(database, batch=64)
        order += await served(database, worker_id)

    assert order == run_ids


async def test_occurrences_of_a_schedule_keep_the_fifo_order(database, clock):
    await an_active_schedule(database, every=1, options=IN_LINE)
    for _ in range(3):
        await clock.advance(1)
        await staged(database)
    numbers = await database.fetch("select (options->>'fifo')::bigint from duly.blocked order by due_at")
    assert len(numbers) == 2
    assert sorted(numbers) == list(numbers)

    order = await served(database, await a_worker(database))
    assert order == sorted(order), "run ids rise with their moments"
    assert await history.verify(database) == []


async def test_a_key_has_one_line_whatever_limit_somebody_sets(database):
    await a_line(database)
    await database.execute("select duly.limit_concurrency_key(1, $1, 5, null, null)", LINE)

    assert await counts(database) == {"blocked": 3, "ready": 1}


async def test_fifo_key_keeps_its_order_under_random_moves(database):
    """Two schedulers, cancels, failures and hand-backs at random: what starts first has never come later."""
    chance = random.Random(11)
    left, _ = await a_scheduler(database)
    right, _ = await a_scheduler(database)
    held = [(left, await hold(database, left)), (right, await hold(database, right))]
    worker_id = await a_worker(database)
    order: list = []
    placed: dict = {}
    for _ in range(60):
        jobs = [a_submission(fifo=LINE, retry=NO_DELAY) for _ in range(chance.randrange(3))]
        for one in await submit_many(database, jobs, key=a_key()) if jobs else ():
            placed[one.job_id] = len(placed)
        moves: list[Any] = [stage(database, *held[0], batch=64), stage(database, *held[1], batch=64)]
        if placed and chance.random() < 0.3:
            moves.append(cancel_run(database, chance.choice(list(placed))))
        for run in await claimed(database, worker_id):
            order.append(run.run_id)
            moves.append(
                chance.choice(
                    [
                        lambda run=run: settled(database, worker_id, run),
                        lambda run=run: settled(database, worker_id, run, Failed("again")),
                        lambda run=run: settled(database, worker_id, run, Failed("broken", retryable=False)),
                        lambda run=run: hand_back(database, worker_id, [run]),
                    ]
                )()
            )
        chance.shuffle(moves)
        await asyncio.gather(*moves)
        inside = await database.fetchval("select count(*) from duly.ready") + await database.fetchval(
            "select count(*) from duly.leased"
        )
        assert inside <= 1
        assert await history.verify(database) == []

    slots = [placed[run_id] for run_id in order]
    assert slots == sorted(slots)
    assert len(set(slots)) > 10
