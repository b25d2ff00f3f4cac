"""Rates: no stretch of time holds more planned starts than burst + rate × its length, and each attempt has its own turn."""

import random
from datetime import timedelta

import pytest

from duly.domain.runs.options import options_of
from duly.domain.runs.outcome import Failed, Lost
from duly.domain.runs.retry import Retry
from duly.moves.cancel import cancel_run
from duly.moves.settle import hand_back
from duly.moves.submit import submit_many
from duly.moves.trigger import trigger
from duly.moves.waiting import reserve
from duly.store.boxes import history
from duly.store.tables import concurrency_keys
from tests.builders import (
    HANDLER,
    a_key,
    a_ready_run,
    a_submission,
    a_worker,
    an_active_schedule,
    blocks_read,
    boxes_of,
    claimed,
    counts,
    many_blocked_runs,
    settled,
    staged,
)

KEY = "mail"
NO_DELAY = Retry(max_attempts=5, base_seconds=0, cap_seconds=0)
ROUNDING = timedelta(microseconds=2)


async def a_crowd(database, number, rate=(KEY, 10, 1), **more):
    """Submit runs of one rate, and let them come to it."""
    jobs = [a_submission(rate=rate, retry=NO_DELAY, **more) for _ in range(number)]
    submitted = await submit_many(database, jobs, key=a_key())
    await staged(database)
    return [one.job_id for one in submitted]


async def planned(database):
    """Read the planned moments of what is ready."""
    return [row[0] for row in await database.fetch("select due_at from duly.ready order by due_at")]


def check_rate(moments, per_second, burst):
    """Look at every stretch from one start to another."""
    moments = sorted(moments)
    for first, start in enumerate(moments):
        for last in range(first, len(moments)):
            stretch = (moments[last] - start + ROUNDING).total_seconds()
            assert last - first + 1 <= burst + per_second * stretch, (first, last, stretch)


async def test_a_run_at_a_free_rate_is_ready_at_once(database, clock):
    [run_id] = await a_crowd(database, 1)

    assert await boxes_of(database, run_id) == ["ready"]
    assert await planned(database) == [clock.at]


async def test_story_24_reservations_are_spaced_evenly_one_second_ahead(database, clock):
    await a_crowd(database, 30)

    moments = await planned(database)
    assert moments == [clock.at + number * timedelta(seconds=0.1) for number in range(11)]
    assert await counts(database) == {"blocked": 19, "ready": 11}
    assert await history.verify(database) == []

    await clock.advance(0.25)
    await reserve(database)
    assert len(await planned(database)) == 13


async def test_after_a_rest_a_burst_starts_at_once(database, clock):
    await a_crowd(database, 30, rate=(KEY, 10, 5))

    moments = await planned(database)
    assert moments[:5] == [clock.at] * 5
    assert moments[5] == clock.at + timedelta(seconds=0.1)


async def test_rate_below_one_a_second_is_not_reserved_ahead(database, clock):
    await a_crowd(database, 3, rate=(KEY, 0.1, 1))
    assert await counts(database) == {"blocked": 2, "ready": 1}

    await clock.advance(8)
    await reserve(database)
    assert await counts(database) == {"blocked": 2, "ready": 1}, "its one second begins later"
    worker_id = await a_worker(database)
    for run in await claimed(database, worker_id):
        await settled(database, worker_id, run)
    await clock.advance(1.5)
    await reserve(database)
    assert await planned(database) == [clock.at + timedelta(seconds=0.5)]


@pytest.mark.parametrize("seed", range(6))
async def test_no_stretch_holds_more_than_it_may(database, clock, seed):
    chance = random.Random(seed)
    per_second, burst = chance.choice([(3.0, 1), (7.5, 4), (40.0, 10), (0.7, 2), (100.0, 1), (1 / 3, 3)])
    worker_id = await a_worker(database, lease=timedelta(hours=1))
    moments: list = []
    for _ in range(25):
        if chance.random() < 0.5:
            jobs = [a_submission(rate=(KEY, per_second, burst), retry=NO_DELAY) for _ in range(chance.randrange(1, 12))]
            await submit_many(database, jobs, key=a_key())
        await staged(database)
        await reserve(database)
        taken = await claimed(database, worker_id)
        moments += [run.due_at for run in taken]
        for run in taken:
            ways = [settled(database, worker_id, run), settled(database, worker_id, run, Failed("again"))]
            chosen = chance.randrange(3)
            for number, way in enumerate(ways):
                if number == chosen:
                    await way
                else:
                    way.close()
            if chosen == 2:
                await hand_back(database, worker_id, [run])
        assert await history.verify(database) == []
        await clock.advance(chance.choice([0.05, 0.25, 0.25, 1, 3]))

    assert len(moments) > 5
    check_rate(moments, per_second, burst)


@pytest.mark.parametrize("way", ["handed back", "failed", "lost"])
async def test_every_attempt_has_a_turn_of_its_own(database, clock, way):
    run_ids = await a_crowd(database, 11)
    worker_id = await a_worker(database)
    taken = await claimed(database, worker_id)
    assert len(taken) == len(run_ids)
    moments = [run.due_at for run in taken]

    if way == "handed back":
        await hand_back(database, worker_id, taken)
    else:
        for run in taken:
            await settled(database, worker_id, run, Failed("again") if way == "failed" else Lost())
    assert await planned(database) == []
    for _ in range(8):
        await staged(database)
        await reserve(database)
        moments += [run.due_at for run in await claimed(database, worker_id)]
        await clock.advance(0.25)

    assert len(moments) == 22
    check_rate(moments, 10, 1)


async def test_run_takes_its_slot_before_its_reservation_and_keeps_it(database):
    await a_crowd(database, 3, concurrency=("customer-7", 2))
    assert await counts(database) == {"blocked": 1, "ready": 2}
    assert await history.verify(database) == []

    worker_id = await a_worker(database)
    [first, _] = await claimed(database, worker_id)
    await settled(database, worker_id, first)

    assert await counts(database) == {"ready": 1, "leased": 1}
    assert await history.verify(database) == []


async def test_run_waiting_for_its_reservation_keeps_its_slot_until_cancelled(database, clock):
    await a_crowd(database, 3, rate=(KEY, 0.1, 1), concurrency=("customer-7", 2))
    rows = await database.fetch("select waits_for::text, key, run_id from duly.blocked")
    waiting = {(row["waits_for"], row["key"]): row["run_id"] for row in rows}
    assert set(waiting) == {("rate", "mail"), ("concurrency", "customer-7")}

    await cancel_run(database, waiting["rate", "mail"])

    left = await database.fetch("select waits_for::text, key, run_id from duly.blocked")
    assert [tuple(row) for row in left] == [("rate", "mail", waiting["concurrency", "customer-7"])]
    assert await history.verify(database) == []


async def test_fifo_key_with_a_rate_limit_keeps_order_and_rate(database, clock):
    jobs = [a_submission(fifo="orders", rate=(KEY, 10, 1), retry=NO_DELAY) for _ in range(4)]
    run_ids = [one.job_id for one in await submit_many(database, jobs, key=a_key())]
    worker_id = await a_worker(database)
    order, moments, failed = [], [], False
    for _ in range(40):
        await staged(database)
        await reserve(database)
        for run in await claimed(database, worker_id):
            order.append(run.run_id)
            moments.append(run.due_at)
            await settled(database, worker_id, run, None if failed else Failed("again"))
            failed = True
        assert await history.verify(database) == []
        await clock.advance(0.05)

    assert order == [run_ids[0], *run_ids]
    check_rate(moments, 10, 1)


async def test_unclaimed_reservations_delay_only_their_own_queue(database, clock):
    await a_crowd(database, 60, queue="idle")
    for _ in range(20):
        await clock.advance(0.25)
        await reserve(database)
    piled = await database.fetchval("select count(*) from duly.ready")
    assert piled < 31, "about two seconds' worth"

    await a_crowd(database, 3, queue="busy")
    await clock.advance(0.25)
    await reserve(database)
    assert await database.fetchval("select count(*) from duly.ready where queue = 'busy'") == 3


@pytest.mark.parametrize("left", [{"handler": "nobody.has"}, {"suspect": True}])
async def test_unclaimed_reservation_delays_only_runs_of_its_kind(database, clock, left):
    await a_crowd(database, 31, handler=left.get("handler", HANDLER))
    for box in ("ready", "blocked"):
        await database.execute(f"update duly.{box} set suspect = $1", "suspect" in left)
    await clock.advance(2)

    run_ids = await a_crowd(database, 3)

    assert [await boxes_of(database, run_id) for run_id in run_ids] == [["ready"]] * 3
    assert await counts(database) == {"blocked": 20, "ready": 14}, "what was given before, and those three"


async def test_reservation_does_not_scan_unroutable_runs(database, clock):
    await a_crowd(database, 1, handler="nobody.has")
    await clock.advance(2)
    await many_blocked_runs(
        database, 5_000, waits_for="rate", key=KEY, handler="nobody.has", options=f'{{"rate": ["{KEY}", 10, 1]}}'
    )
    await a_crowd(database, 3)
    await clock.advance(1)

    assert await blocks_read(database, "select duly.next_at_rate(1, $1, 10, duly.clock_now())", KEY) < 200


async def test_rate_limit_continues_after_the_clock_is_set_back(database, clock):
    await a_crowd(database, 60, rate=(KEY, 1, 1))
    worker_id = await a_worker(database, lease=timedelta(hours=1))
    for _ in range(20):
        await clock.advance(1)
        await reserve(database)
        for run in await claimed(database, worker_id):
            await settled(database, worker_id, run)

    await clock.step(-10)
    for _ in range(12):
        await reserve(database)
        await clock.advance(0.25)

    moments = await planned(database)
    assert moments[0] <= clock.at, "one period after it was set back"
    assert len(moments) >= 2
    check_rate(moments, 1, 1)


async def test_reservations_ahead_of_a_set_back_clock_are_issued_again(database, clock):
    await a_crowd(database, 60, rate=(KEY, 10, 1), concurrency=("customer-7", 100))
    worker_id = await a_worker(database, lease=timedelta(hours=1))
    for run in await claimed(database, worker_id):
        await settled(database, worker_id, run)
    await clock.advance(700)
    await reserve(database)
    before = await planned(database)

    await clock.step(-600)
    await reserve(database)

    moments = await planned(database)
    assert before[-1] - clock.at > timedelta(minutes=10)
    assert moments == [], "a second's turns were reserved; their runs wait again, and so does everybody behind them"
    await clock.advance(1.1)
    await reserve(database)
    moments = await planned(database)
    assert (len(moments), moments[0]) == (11, clock.at)
    assert await counts(database) == {"blocked": 38, "ready": 11}
    assert await history.verify(database) == []


async def test_reservations_are_withdrawn_in_batches_and_recomputed_after_the_last(database, clock):
    await a_crowd(database, 1_200, rate=(KEY, 2_000, 1))
    await reserve(database)
    assert await counts(database) == {"ready": 1_200}

    await clock.step(-600)
    await reserve(database)
    assert await counts(database) == {"blocked": 1_000, "ready": 200}
    assert await database.fetchval("select reckoned_at > duly.clock_now() from duly.rate_limits")
    await reserve(database)

    assert await counts(database) == {"blocked": 1_200}
    assert await database.fetchval("select reckoned_at = duly.clock_now() from duly.rate_limits")
    assert await history.verify(database) == []


async def test_a_small_step_back_gives_no_turn_twice(database, clock):
    await a_crowd(database, 60, rate=(KEY, 10, 3))
    worker_id = await a_worker(database)
    moments = []
    for number in range(20):
        if number == 8:
            await clock.step(-2)
        await reserve(database)
        taken = await claimed(database, worker_id)
        moments += [run.due_at for run in taken]
        await clock.advance(0.25)

    assert len(moments) > 35
    check_rate(moments, 10, 3)


async def test_runs_due_by_a_clock_that_stepped_back_wait_for_their_own_moment(database, clock):
    await a_crowd(database, 30, rate=(KEY, 1, 1))
    due_at = clock.at
    await clock.step(-60)
    [new] = await a_crowd(database, 1, rate=(KEY, 1, 1))
    await clock.advance(2)
    await reserve(database)

    assert await planned(database) == [clock.at]
    assert await boxes_of(database, new) == ["ready"]
    worker_id = await a_worker(database, lease=timedelta(hours=1))
    [run] = await claimed(database, worker_id)
    await settled(database, worker_id, run)
    await clock.advance(57)
    await reserve(database)
    assert await planned(database) == []
    await clock.advance(1)
    await reserve(database)
    assert await planned(database) == [due_at, due_at + timedelta(seconds=1)]


@pytest.mark.parametrize("seed", range(6))
async def test_no_stretch_holds_more_than_it_may_however_the_clock_is_set(database, clock, seed):
    chance = random.Random(seed)
    per_second, burst = chance.choice([(3.0, 1), (7.5, 4), (40.0, 10), (0.7, 2)])
    await a_crowd(database, 400, rate=(KEY, per_second, burst))
    await clock.advance(10_000)
    worker_id = await a_worker(database, lease=timedelta(days=1))
    given = 0
    moments: list = []
    for _ in range(60):
        if chance.random() < 0.15:
            await clock.step(chance.choice([-2, -30, -600, 30, 600]))
            moments = []  # Another time begins; what was planned in the one before and not started counts in this one.
        await staged(database)
        await reserve(database)
        taken = await claimed(database, worker_id)
        lost = [run for run in taken if run.due_at > clock.at + timedelta(seconds=2)]
        await hand_back(database, worker_id, lost)  # As a worker does.
        for run in taken:
            if run not in lost:
                moments.append(run.due_at)
                given += 1
                await settled(database, worker_id, run)
        assert await history.verify(database) == []
        check_rate(moments, per_second, burst)
        await clock.advance(chance.choice([0.05, 0.25, 0.25, 1, 3]))

    assert given >= min(400, per_second * 20)


async def test_a_thousand_rates_are_found_again_without_a_walk_over_all(database, clock):
    await database.execute(
        "insert into duly.rate_limits"
        " (tenant, key, per_second, burst, requested_per_second, requested_burst, next_at, look_at, reckoned_at)"
        " select 1, n::text, 0.001, 1, 0.001, 1, at + interval '1 hour', at + interval '1 hour', at"
        "   from (select n, duly.clock_now() as at from generate_series(1, 20000) as n) as made"
    )
    await database.execute("analyze duly.rate_limits")

    assert await blocks_read(database, "select duly.reserve_due(1000)") < 100


async def test_changed_rate_applies_to_waiting_runs_within_a_second(database, clock):
    await a_crowd(database, 30, rate=(KEY, 0.01, 1))
    assert await counts(database) == {"blocked": 29, "ready": 1}

    await concurrency_keys.set_limits(database, 1, KEY, None, (20, 1))

    moments = await planned(database)
    assert len(moments) == 21
    assert moments[1] == clock.at + timedelta(seconds=0.05)
    check_rate(moments, 20, 1)


async def test_a_lowered_rate_lets_no_more_be_planned_than_it_allows(database, clock):
    await a_crowd(database, 30, rate=(KEY, 10, 1))
    await concurrency_keys.set_limits(database, 1, KEY, None, (1, 1))
    before = await planned(database)

    await clock.advance(12)
    await database.execute("delete from duly.ready")
    await reserve(database)

    assert len(before) == 11
    assert len(await planned(database)) <= 2


async def test_rate_limit_row_is_deleted_when_no_run_needs_it(database, clock):
    await a_crowd(database, 2)
    await clock.advance(1)
    await reserve(database)

    assert await database.fetch("select from duly.rate_limits") == []


async def test_a_triggered_run_waits_for_its_turn(database, clock):
    options = options_of(rate=(KEY, 0.5, 1))
    submitted = await an_active_schedule(database, every=3600, options=options)
    first = await trigger(database, submitted.job_id, key="one")
    second = await trigger(database, submitted.job_id, key="two")

    assert (first.state, second.state) == ("ready", "blocked")
    assert await history.verify(database) == []


async def test_occurrences_of_a_schedule_wait_for_their_turn(database, clock):
    options = options_of(rate=(KEY, 0.5, 1))
    await an_active_schedule(database, every=1, options=options)
    for _ in range(4):
        await clock.advance(1)
        await staged(database)

    assert await counts(database) == {"timers": 1, "blocked": 2, "ready": 2}
    check_rate(await planned(database), 0.5, 1)


async def test_single_run_passes_a_rate_limit_and_leaves_no_rows(database, clock):
    run_id = await a_ready_run(database, rate=(KEY, 5, 1))
    await staged(database)
    worker_id = await a_worker(database)
    [run] = await claimed(database, worker_id)
    assert run.run_id == run_id
    await settled(database, worker_id, run)

    assert await counts(database) == {}
