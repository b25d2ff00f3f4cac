"""The record of a run's end tells what the run was: its payload, its options, its priority and its version."""

from datetime import timedelta

import pytest

from duly.domain.runs.callbacks import Callback, Callbacks
from duly.domain.runs.options import NO_OPTIONS, options_of
from duly.domain.runs.outcome import Failed, Succeeded
from duly.domain.runs.retry import Retry
from duly.moves.cancel import cancel_run
from duly.moves.dead import discard
from duly.store import retention
from duly.store.boxes import history, runs
from duly.store.reads import overview
from tests.builders import a_dead_run, a_leased_run, a_waiting_run, a_worker, claimed, settled, staged

SMALL = '{"customer": 7}'
FEW = Retry(max_attempts=3)


async def record_of(database, run_id) -> tuple:
    """Give what is known of an ended run: its payload, its options, its priority, and whether its payload is kept."""
    carried = await overview.arguments(database, run_id)
    found = await runs.find(database, run_id) or {}
    return carried["payload"], carried["options"], found["priority"], carried["is_kept"]


async def columns_of(database, run_id) -> dict:
    """Give the columns that a record of an end has beside the others."""
    names = "generation, priority, payload::text, payload_stored, options::text"
    return dict(await database.fetchrow(f"select {names} from duly.attempts where run_id = $1", run_id))


async def test_record_of_a_success_keeps_its_payload_and_no_defaults(database):
    worker_id, run = await a_leased_run(database, payload=SMALL)

    await settled(database, worker_id, run, Succeeded())

    assert await record_of(database, run.run_id) == (SMALL, NO_OPTIONS, 5, True)
    assert await columns_of(database, run.run_id) == {
        "generation": None,
        "priority": None,
        "payload": SMALL,
        "payload_stored": None,
        "options": None,
    }


@pytest.mark.parametrize("outcome", [Succeeded(), Succeeded('{"sum": 1}')])
async def test_record_of_a_success_keeps_its_options_and_priority(database, outcome):
    worker_id, run = await a_leased_run(database, payload=SMALL, retry=FEW, tags=["x"], priority=2)

    await settled(database, worker_id, run, outcome)

    payload, options, priority, _ = await record_of(database, run.run_id)
    assert (payload, priority) == (SMALL, 2)
    assert options == options_of(retry=FEW, tags=("x",))


async def test_record_of_a_cancelled_waiting_run_keeps_payload_and_options(database):
    run_id = await a_waiting_run(database, payload=SMALL, retry=FEW, tags=["x"], priority=2)

    await cancel_run(database, run_id)

    payload, options, priority, is_kept = await record_of(database, run_id)
    assert (payload, priority, is_kept) == (SMALL, 2, True)
    assert options == options_of(retry=FEW, tags=("x",))


async def test_record_of_a_discarded_run_keeps_payload_and_callbacks(database):
    run_id = await a_dead_run(database, payload=SMALL, callbacks=Callbacks(failure=Callback(job="mop up")))

    await discard(database, [run_id])

    payload, options, _, is_kept = await record_of(database, run_id)
    assert (payload, is_kept) == (SMALL, True)
    assert options.metadata.callbacks == Callbacks(failure=Callback(job="mop up"))


async def test_a_failed_attempt_that_is_tried_again_records_none_of_it(database):
    worker_id, run = await a_leased_run(database, payload=SMALL, retry=FEW, tags=["x"], priority=2)

    await settled(database, worker_id, run, Failed("broken", retry_after=timedelta(seconds=60)))

    assert set((await columns_of(database, run.run_id)).values()) == {None}


async def test_the_payload_of_a_success_is_kept_up_to_a_size_and_of_a_cancelled_run_whatever_its_size(database):
    await history.limit_payloads(database, 100)
    large = '{"text": "' + "x" * 200 + '"}'
    worker_id = await a_worker(database)
    for payload in (SMALL, large):
        await settled(database, *await a_leased_run(database, worker_id, payload=payload))
    waiting = await a_waiting_run(database, payload=large)
    await cancel_run(database, waiting)

    kept = await database.fetch(
        "select payload::text, payload_stored from duly.attempts_succeeded order by payload_stored nulls first"
    )
    assert [tuple(row) for row in kept] == [(SMALL, None), (None, False)]
    assert (await record_of(database, waiting))[0] == large


@pytest.mark.parametrize(("is_success", "days"), [(True, 7), (False, 90)])
async def test_payload_stored_separately_is_kept_as_long_as_its_record(database, clock, is_success, days):
    large = '{"text": "' + "x" * 5000 + '"}'
    run_id = await a_waiting_run(database, payload=large, delay=10 * 86_400)
    await clock.advance(timedelta(days=10))
    if is_success:
        await staged(database)
        [run] = await claimed(database, worker_id := await a_worker(database))
        await settled(database, worker_id, run)
    else:
        await cancel_run(database, run_id)

    async def forget() -> bool:
        await retention.forget_payloads(database, timedelta(days=7), timedelta(days=90), 100)
        return bool((await overview.arguments(database, run_id))["is_kept"])

    assert await forget(), "stored long before it ended"
    await clock.advance(timedelta(days=days - 1))
    assert await forget()
    await clock.advance(timedelta(days=2))
    assert not await forget()
