"""Receive: a run that its receiver has taken on is under way until it is settled, its deadline passes, or it is cancelled."""

import pytest

from duly.domain.errors import AttemptOver, NotFound, Unsettled
from duly.domain.runs.outcome import Failed, Succeeded
from duly.domain.runs.retry import Retry
from duly.log import Log
from duly.maintenance.reaper import Reaper
from duly.moves.cancel import CancelAnswer, cancel_run, carry_out
from duly.moves.workers.receive import extend, receive, time_out
from duly.store.boxes import awaited, history, leased
from tests.builders import (
    LEASE,
    RNG,
    a_leased_run,
    a_ready_run,
    a_row,
    a_worker,
    an_active_schedule,
    an_awaited_run,
    boxes_of,
    claimed,
    counts,
    found_run,
    history_of,
    seconds,
    settled,
    staged,
    taken_on,
)

HOUR = 3_600.0


def handle(run):
    return (run.run_id, run.fence)


async def deadlines(database) -> int:
    return int(await database.fetchval("select count(*) from duly.awaited"))


async def test_run_accepted_by_its_receiver_keeps_its_fence_and_attempt(database):
    worker_id, run = await a_leased_run(database)
    await taken_on(database, worker_id, run)

    found = await found_run(database, run.run_id)
    assert (found["state"], found["attempt"], found["fence"]) == ("running", 1, run.fence)
    assert found["worker_id"] == awaited.RECEIVER
    assert await leased.held_by(database, worker_id, 10) == []
    assert await history.verify(database) == []


async def test_the_receiver_settles_it_and_the_record_spans_the_whole_attempt(database, clock):
    run = await an_awaited_run(database)
    began = clock.at
    await clock.advance(600)

    received = await receive(database, handle(run), Succeeded('{"rows": 7}'), RNG)

    assert (received.state, received.attempt) == ("succeeded", 1)
    [attempt] = (await found_run(database, run.run_id))["attempts"]
    assert (attempt["started_at"], attempt["finished_at"] - began) == (began, seconds(600))
    assert attempt["result"] == '{"rows": 7}'
    assert await deadlines(database) == 0
    assert await counts(database) == {}


async def test_repeated_outcome_gets_the_same_response_and_another_is_refused(database):
    run = await an_awaited_run(database)
    first = await receive(database, handle(run), Succeeded("1"), RNG)

    again = await receive(database, handle(run), Succeeded("1"), RNG)
    assert (again.state, again.attempt) == (first.state, first.attempt)
    with pytest.raises(AttemptOver, match="it succeeded"):
        await receive(database, handle(run), Failed("no"), RNG)
    assert await history_of(database, run.run_id) == [(1, "succeeded", "succeeded")]


async def test_a_failure_is_retried_as_any_other_and_its_token_is_good_for_that_attempt_alone(database, clock):
    run = await an_awaited_run(database, retry=Retry(max_attempts=2, base_seconds=1))
    assert (await receive(database, handle(run), Failed("busy"), RNG)).state == "retrying"
    await clock.advance(60)
    await staged(database)
    worker_id = await a_worker(database)
    [second] = await claimed(database, worker_id)
    await taken_on(database, worker_id, second)

    with pytest.raises(AttemptOver, match="attempt 1"):
        await receive(database, handle(run), Succeeded(None), RNG)
    assert (await receive(database, handle(second), Failed("busy"), RNG)).state == "dead"


async def test_a_failure_may_be_final_or_say_when_to_come_back(database, clock):
    final, later = await an_awaited_run(database), await an_awaited_run(database)

    assert (await receive(database, handle(final), Failed("no", retryable=False), RNG)).state == "dead"
    await receive(database, handle(later), Failed("busy", retry_after=seconds(900)), RNG)
    assert (await a_row(database, "timers", later.run_id))["due_at"] >= clock.at + seconds(900)


async def test_a_receiver_that_is_faster_than_its_own_answer_is_heard(database):
    worker_id, run = await a_leased_run(database)

    assert (await receive(database, handle(run), Succeeded(None), RNG)).state == "succeeded"
    await taken_on(database, worker_id, run)

    assert await counts(database) == {}
    assert await deadlines(database) == 0
    assert await history_of(database, run.run_id) == [(1, "succeeded", "succeeded")]


async def test_worker_outcome_after_the_receivers_changes_nothing(database):
    worker_id, run = await a_leased_run(database)
    await receive(database, handle(run), Succeeded(None), RNG)

    await settled(database, worker_id, run, Failed("the connection broke"))

    assert (await found_run(database, run.run_id))["state"] == "succeeded"


async def test_past_its_deadline_the_attempt_has_timed_out_and_is_retried(database, clock):
    run = await an_awaited_run(database)
    await clock.advance(HOUR - 1)
    assert await time_out(database, RNG) == 0

    await clock.advance(1)
    assert await time_out(database, RNG) == 1

    assert await history_of(database, run.run_id) == [(1, "timed_out", "retrying")]
    assert (await found_run(database, run.run_id))["attempts"][0]["reason"] == "timed out after 3600 s"
    assert await deadlines(database) == 0
    assert await time_out(database, RNG) == 0


async def test_a_deadline_can_be_put_off_while_the_receiver_has_it(database, clock):
    run = await an_awaited_run(database)
    await clock.advance(HOUR / 2)
    assert await extend(database, handle(run), seconds(2 * HOUR)) == clock.at + seconds(2 * HOUR)

    await clock.advance(HOUR)
    assert await time_out(database, RNG) == 0
    await receive(database, handle(run), Succeeded(None), RNG)
    with pytest.raises(AttemptOver):
        await extend(database, handle(run), seconds(HOUR))


async def test_passed_deadline_cannot_be_extended_before_the_time_out_runs(database, clock):
    run = await an_awaited_run(database)
    await clock.advance(HOUR)

    with pytest.raises(AttemptOver, match=r"its deadline, .*Z, has passed"):
        await extend(database, handle(run), seconds(HOUR))

    assert await time_out(database, RNG) == 1


async def test_outcome_after_the_deadline_counts_until_the_run_is_timed_out(database, clock):
    run, late = await an_awaited_run(database), await an_awaited_run(database)
    await clock.advance(HOUR + 60)

    assert (await receive(database, handle(run), Succeeded(None), RNG)).state == "succeeded"

    assert await time_out(database, RNG) == 1
    with pytest.raises(AttemptOver, match="it timed out, and the run became retrying"):
        await receive(database, handle(late), Succeeded(None), RNG)
    assert await history_of(database, run.run_id) == [(1, "succeeded", "succeeded")]


async def test_a_deadline_is_put_off_only_when_there_is_one(database):
    _, run = await a_leased_run(database)

    with pytest.raises(Unsettled, match="answer 202 first"):
        await extend(database, handle(run), seconds(HOUR))
    with pytest.raises(NotFound):
        await extend(database, (run.run_id, run.fence + 1), seconds(HOUR))


async def test_an_attempt_that_never_was_is_not_found(database):
    run = await an_awaited_run(database)

    with pytest.raises(NotFound):
        await receive(database, (run.run_id, run.fence + 1), Succeeded(None), RNG)


async def test_a_cancel_takes_effect_at_once(database):
    run = await an_awaited_run(database)

    assert await cancel_run(database, run.run_id) is CancelAnswer.CANCELLED

    assert await history_of(database, run.run_id) == [(1, "cancelled", "cancelled")]
    assert await deadlines(database) == 0
    with pytest.raises(AttemptOver, match="cancelled"):
        await receive(database, handle(run), Succeeded(None), RNG)
    assert await cancel_run(database, run.run_id) is CancelAnswer.TOO_LATE


async def test_a_cancel_under_way_ends_a_run_that_its_receiver_takes_on(database):
    worker_id, run = await a_leased_run(database)
    await cancel_run(database, run.run_id)

    await taken_on(database, worker_id, run)

    assert await history_of(database, run.run_id) == [(1, "cancelled", "cancelled")]
    assert await counts(database) == {}


async def test_a_cancel_that_was_on_its_way_to_the_worker_is_carried_out(database):
    worker_id, run = await a_leased_run(database)
    await taken_on(database, worker_id, run)
    await database.execute(  # As if its look had been before the run changed hands.
        "insert into duly.signals (worker_id, run_id, fence, kind, sent_at) values ($1, $2, $3, 'cancel', duly.clock_now())",
        worker_id,
        run.run_id,
        run.fence,
    )

    assert await carry_out(database) == 1
    assert await boxes_of(database, run.run_id) == []


async def test_next_occurrence_cancels_the_awaited_run_that_it_replaces(database, clock):
    await an_active_schedule(database, every=60, overlap={"policy": "cancel_running"})
    await clock.advance(60)
    await staged(database)
    worker_id = await a_worker(database)
    [run] = await claimed(database, worker_id)
    await taken_on(database, worker_id, run)

    await clock.advance(60)
    await staged(database)
    await carry_out(database)

    assert await history_of(database, run.run_id) == [(1, "cancelled", "cancelled")]
    assert (await counts(database))["ready"] == 1
    assert await history.verify(database) == []


async def test_awaited_run_occupies_its_concurrency_slot_until_it_ends(database):
    first, second = [await a_ready_run(database, concurrency=("customer-7", 1)) for _ in range(2)]
    worker_id = await a_worker(database)
    await staged(database)
    [run] = await claimed(database, worker_id)
    await taken_on(database, worker_id, run)
    assert await claimed(database, worker_id) == []
    assert await history.verify(database) == []

    await receive(database, handle(run), Succeeded(None), RNG)

    assert [one.run_id for one in await claimed(database, worker_id)] == [second if run.run_id == first else first]
    assert await history.verify(database) == []


@pytest.mark.parametrize("ending", ["cancelled", "timed out"])
async def test_awaited_run_leaves_its_concurrency_key_however_it_ends(database, clock, ending):
    run = (await an_awaited_run_at_a_gate(database))[0]

    if ending == "cancelled":
        await cancel_run(database, run.run_id)
    else:
        await clock.advance(HOUR)
        await time_out(database, RNG)

    assert await history.verify(database) == []
    assert await database.fetchval("select count(*) from duly.concurrency_keys") == 0


async def an_awaited_run_at_a_gate(database):
    await a_ready_run(database, concurrency=("customer-7", 1))
    worker_id = await a_worker(database)
    await staged(database)
    [run] = await claimed(database, worker_id)
    await taken_on(database, worker_id, run)
    return run, worker_id


async def test_the_death_of_the_worker_that_sent_it_is_no_news_to_it(database, clock):
    run = await an_awaited_run(database)
    reaper = Reaper(database, rng=RNG, log=Log("test"))

    for _ in range(61):
        await reaper.step()
        await clock.advance(LEASE / 10)

    assert reaper.reaped == 1
    assert (await found_run(database, run.run_id))["state"] == "running"
    assert await history.verify(database) == []
    assert (await receive(database, handle(run), Succeeded(None), RNG)).state == "succeeded"


async def test_deadline_of_a_missing_run_is_deleted(database, clock):
    run = await an_awaited_run(database)
    await database.execute("delete from duly.leased where run_id = $1", run.run_id)
    await clock.advance(HOUR)

    assert await time_out(database, RNG) == 0
    assert await deadlines(database) == 0


async def test_verify_finds_a_run_that_waits_for_its_receiver_without_a_deadline(database):
    run = await an_awaited_run(database)
    await database.execute("delete from duly.awaited")

    assert [(row["broken"], row["id"]) for row in await history.verify(database)] == [
        ("lease without a worker", str(run.run_id))
    ]
