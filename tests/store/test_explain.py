"""The facts of explanations are read correctly, for a run in each box and for a job."""

from datetime import timedelta

import pytest

from duly.domain.runs.outcome import Failed, WaitForDestination
from duly.moves.admin.destinations import close, report
from duly.moves.cancel import cancel_run
from duly.moves.defer import Deferred, defer
from duly.moves.schedules.pause import pause
from duly.moves.settle import hand_back
from duly.store.reads import explain
from duly.store.tables.destinations import DestinationReport
from tests.builders import (
    RNG,
    a_dead_run,
    a_leased_run,
    a_ready_run,
    a_retrying_run,
    a_scheduler,
    a_waiting_run,
    a_worker,
    an_active_schedule,
    claimed,
    settled,
    staged,
)


async def told(database, identifier, tenant=1) -> dict[str, dict]:
    found = await explain.job_or_run(database, tenant, identifier)
    assert found is not None
    return {reason.code: reason.facts for reason in found.reasons}


async def test_explain_returns_nothing_for_unknown_ids_and_other_tenants(database):
    mine = await a_ready_run(database)
    job = (await an_active_schedule(database)).job_id

    assert await explain.job_or_run(database, 1, RNG.uuid()) is None
    assert await explain.job_or_run(database, 2, mine) is None
    assert await explain.job_or_run(database, 2, job) is None


async def test_explain_shows_why_a_scheduled_run_waits(database):
    assert set(await told(database, await a_waiting_run(database))) == {"not_due", "no_scheduler"}


async def test_explain_counts_runs_of_lower_rank_before_a_ready_run(database, clock):
    await a_ready_run(database, priority=0)
    run_id = await a_ready_run(database, priority=5)
    await a_ready_run(database, priority=9)
    await a_ready_run(database, priority=0, queue="other")

    assert (await told(database, run_id))["queue_backlog"]["before"] == 1
    assert "no_worker_for_queue" in await told(database, run_id)
    await a_worker(database, handlers=["other"])
    assert "unroutable" in await told(database, run_id)
    await a_worker(database)
    assert (await told(database, run_id))["workers_busy"] == {"workers": 1, "slots": 10}


async def positions(database, run_ids, code: str) -> dict:
    return {run_id: (await told(database, run_id))[code]["before"] for run_id in run_ids}


async def test_explain_orders_a_batch_as_it_is_claimed(database):
    worker_id = await a_worker(database)
    run_ids = [await a_ready_run(database) for _ in range(6)]
    [first, second] = await claimed(database, worker_id, limit=2)
    await hand_back(database, worker_id, [second])
    await settled(database, worker_id, first)
    run_ids.remove(first.run_id)

    while run_ids:
        before = await positions(database, run_ids, "queue_backlog")
        assert sorted(before.values()) == [*range(len(run_ids))]
        [run] = await claimed(database, worker_id, limit=1)
        assert before[run.run_id] == 0
        run_ids.remove(run.run_id)


async def test_positions_are_counted_up_to_a_bound(database, monkeypatch):
    monkeypatch.setattr(explain, "POSITION_MAX", 3)
    await a_worker(database)
    run_ids = [await a_ready_run(database) for _ in range(6)]

    assert sorted((await positions(database, run_ids, "queue_backlog")).values()) == [0, 1, 2, 3, 3, 3]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"concurrency": ("g", 1)}, "concurrency_limit"),
        ({"fifo": "orders"}, "fifo_order"),
    ],
    ids=["concurrency", "fifo"],
)
async def test_explain_orders_a_batch_as_its_concurrency_key_admits_it(database, clock, options, code):
    run_ids = [await a_waiting_run(database, delay=6, **options) for _ in range(5)]
    worker_id = await a_worker(database, lease=timedelta(hours=1))
    await clock.advance(6)
    await staged(database)
    [run] = await claimed(database, worker_id)
    run_ids.remove(run.run_id)

    while run_ids:
        before = await positions(database, run_ids, code)
        assert sorted(before.values()) == [*range(len(run_ids))]
        await settled(database, worker_id, run)
        await clock.advance(10)
        await staged(database)
        [run] = await claimed(database, worker_id)
        assert before[run.run_id] == 0
        run_ids.remove(run.run_id)


async def test_explain_shows_consecutive_reservations_of_a_batch_at_a_rate(database, clock):
    run_ids = [await a_waiting_run(database, delay=6, rate=("mail", 0.1, 1)) for _ in range(5)]
    await clock.advance(6)
    await staged(database)

    facts = [found["rate_limit"] for run_id in run_ids if "rate_limit" in (found := await told(database, run_id))]

    assert sorted(fact["before"] for fact in facts) == [0, 1, 2, 3]
    assert sorted(fact["reservation_at"] for fact in facts) == [
        clock.at + timedelta(seconds=10 * n) for n in (1, 2, 3, 4)
    ]


async def test_explain_names_the_holders_of_a_concurrency_key(database, clock):
    first = await a_waiting_run(database, delay=6, concurrency=("g", 1))
    second = await a_waiting_run(database, delay=7, concurrency=("g", 1))
    await clock.advance(8)
    await staged(database)

    facts = (await told(database, second))["concurrency_limit"]

    assert facts == {"concurrency": "g", "slots": 1, "active": 1, "holders": [first], "before": 0}


async def test_explain_shows_a_running_run_and_its_worker(database, clock):
    _, run = await a_leased_run(database)
    claimed_at = clock.at
    await clock.advance(3)

    assert (await told(database, run.run_id))["running"] == {"worker": "worker", "since": claimed_at, "attempt": 1}
    await clock.advance(60)
    assert "worker_silent" in await told(database, run.run_id)


async def test_explain_shows_a_retrying_a_dead_and_an_ended_run(database, clock):
    worker_id = await a_worker(database)
    retrying = await a_retrying_run(database, worker_id, after=60)
    dead = await a_dead_run(database, worker_id)
    gone = await a_waiting_run(database)
    await cancel_run(database, gone, "not needed")
    await a_ready_run(database)
    await clock.advance(4)
    [late] = await claimed(database, worker_id)
    await settled(database, worker_id, late)

    assert (await told(database, retrying))["last_error"] == {"error": "broken"}
    assert (await told(database, dead))["dead"] == {"attempts": 1, "reason": "broken", "replays": 0}
    assert (await told(database, gone))["cancelled"]["reason"] == "not needed"
    assert (await told(database, late.run_id))["start_delayed"] == {"start_delay_seconds": 4.0}


async def test_of_one_that_has_passed_a_line_it_is_known_when_it_is_over(database, clock):
    first, second = [await a_waiting_run(database, delay=6, fifo="orders") for _ in range(2)]
    await clock.advance(6)
    await staged(database)
    worker_id = await a_worker(database)
    [run] = await claimed(database, worker_id)
    await clock.advance(5)
    await settled(database, worker_id, run)
    [next_run] = await claimed(database, worker_id)
    running = await explain.run(database, 1, next_run.run_id)
    assert running is not None
    assert "'orders'" in running.reasons[-1].text
    await settled(database, worker_id, next_run)
    assert {run.run_id, next_run.run_id} == {first, second}

    found = await explain.run(database, 1, next_run.run_id)

    assert found is not None
    [late] = [reason.text for reason in found.reasons if reason.code == "start_delayed"]
    assert all(fact in late for fact in ("'orders'", "queue default", "not recorded"))


async def test_explain_names_the_key_and_rate_that_an_ended_run_has_passed(database, clock):
    await a_waiting_run(database, delay=6, concurrency=("customer-7", 1), rate=("mail", 10, 1))
    await clock.advance(6)
    await staged(database)
    worker_id = await a_worker(database)
    await clock.advance(5)
    [run] = await claimed(database, worker_id)
    await settled(database, worker_id, run)

    found = await explain.run(database, 1, run.run_id)

    assert found is not None
    [late] = [reason.text for reason in found.reasons if reason.code == "start_delayed"]
    assert all(fact in late for fact in ("'customer-7'", "'mail'", "queue default"))


async def test_a_job(database, clock):
    job_id = (await an_active_schedule(database, every=60)).job_id
    await a_scheduler(database)
    await a_worker(database)
    assert set(await told(database, job_id)) == {"not_due", "no_run_yet"}

    await clock.advance(60)
    worker_id = await a_worker(database)
    await staged(database)
    for run in await claimed(database, worker_id):
        await settled(database, worker_id, run, Failed("broken", retryable=False))
    await pause(database, job_id, "too noisy")

    found = await told(database, job_id)
    assert found["paused"]["reason"] == "too noisy"
    assert found["failing"]["streak"] >= 1
    assert found["last_run"]["state"] == "dead"


async def test_explain_shows_the_destination_state_of_a_waiting_run(database, clock):
    worker_id, run = await a_leased_run(database)
    await defer(database, worker_id, [Deferred(run, None, WaitForDestination("https://hooks.example"))])
    assert "concurrency_limit" in await told(database, run.run_id)
    seen = DestinationReport(fresh_id=RNG.uuid(), tenant=1, origin="https://hooks.example", failing=5, streak=5)
    await report(database, worker_id, 1, [seen], RNG)

    facts = (await told(database, run.run_id))["circuit_open"]

    assert (facts["origin"], facts["state"]) == ("https://hooks.example", "open")
    assert facts["probe_at"] is not None
    await clock.advance(5)
    assert (await told(database, run.run_id))["circuit_open"]["probe_at"] is None


async def test_explain_covers_a_run_waiting_at_a_circuit_closed_by_hand(database):
    worker_id, run = await a_leased_run(database)
    await defer(database, worker_id, [Deferred(run, None, WaitForDestination("https://hooks.example"))])
    seen = DestinationReport(fresh_id=RNG.uuid(), tenant=1, origin="https://hooks.example", failing=5, streak=5)
    [answered] = await report(database, worker_id, 1, [seen], RNG)
    await close(database, 1, answered.destination_id)

    assert await told(database, run.run_id)


async def test_explain_hides_the_handlers_of_other_tenants_on_a_stalled_worker(database):
    worker_id, run = await a_leased_run(database)
    await database.execute(
        "update duly.workers set stalled_at = duly.clock_now(), stalled_in = array['crunch', $2] where worker_id = $1",
        worker_id,
        run.handler,
    )

    named = {}
    for is_operator in (True, False):
        found = await explain.run(database, 1, run.run_id, database, is_operator=is_operator)
        assert found is not None
        named[is_operator] = {reason.code: reason.facts for reason in found.reasons}["worker_stalled"]["handlers"]

    assert named == {True: ["crunch", run.handler], False: [run.handler]}
