"""Expire: what is worthless late is never started late, wherever it waits, and its end is on record."""

from datetime import timedelta
from uuid import UUID

import pytest

from duly.domain.errors import InvalidOption
from duly.domain.runs.callbacks import Callback, Callbacks
from duly.domain.runs.options import options_of
from duly.domain.runs.outcome import Expired, Failed, Snoozed, WaitForDestination
from duly.domain.runs.retry import Retry
from duly.moves.dead import replay
from duly.moves.defer import Deferred, defer
from duly.moves.submit import submit_recurring
from duly.moves.waiting import expire
from tests.builders import (
    a_key,
    a_leased_run,
    a_ready_run,
    a_schedule,
    a_waiting_run,
    a_worker,
    boxes_of,
    claimed,
    counts,
    found_run,
    history_of,
    seconds,
    settled,
    staged,
)
from tests.clock import START

LATE = START + seconds(60)


async def reason_of(database, run_id: UUID) -> str:
    return str((await found_run(database, run_id))["reason"])


async def test_unclaimed_ready_run_expires_with_a_record(database, clock):
    run_id = await a_ready_run(database, expires_at=LATE)
    await clock.advance(59)
    assert await expire(database) == 0
    await clock.advance(1)

    assert await expire(database) == 1

    assert await boxes_of(database, run_id) == []
    assert await history_of(database, run_id) == [(0, "skipped", "expired")]
    assert await reason_of(database, run_id) == f"expired at {LATE:%Y-%m-%dT%H:%M:%S}.000Z"
    assert (await found_run(database, run_id))["state"] == "expired"


async def test_a_span_counts_from_the_scheduled_moment(database, clock):
    run_id = await a_waiting_run(database, delay=600, expires_after=30)
    await clock.advance(629)
    await staged(database)
    assert await expire(database) == 0
    await clock.advance(1)

    assert await expire(database) == 1
    assert await history_of(database, run_id) == [(0, "skipped", "expired")]


async def test_run_in_timers_expires_at_its_expiry(database, clock):
    await a_waiting_run(database, delay=600, expires_at=LATE)
    await clock.advance(60)

    assert await expire(database) == 1
    assert await counts(database) == {}


async def test_a_run_without_expiry_is_never_touched(database, clock):
    await a_ready_run(database)
    await a_waiting_run(database)
    await clock.advance(timedelta(days=400))

    assert await expire(database) == 0
    assert await counts(database) == {"ready": 1, "timers": 1}


async def test_each_occurrence_of_a_schedule_expires_by_itself_and_its_next_fire_stays(database, clock):
    job = a_schedule(every=60, anchor=START, options=options_of(expires_seconds=90))
    made = await submit_recurring(database, job, key=a_key())
    await staged(database)
    await clock.advance(60)
    await staged(database)
    await clock.advance(31)

    assert await expire(database) == 1

    assert await counts(database) == {"ready": 1, "timers": 1}
    rows = await database.fetch("select scheduled_at from duly.ready where job_id = $1", made.job_id)
    assert [row[0] for row in rows] == [START + seconds(60)]


async def test_expired_run_passes_its_slot_to_the_next_blocked_run(database, clock):
    first = await a_ready_run(database, concurrency=("one", 1), expires_at=LATE)
    await staged(database)
    second = await a_ready_run(database, concurrency=("one", 1))
    await staged(database)
    assert (await boxes_of(database, first), await boxes_of(database, second)) == (["ready"], ["blocked"])
    await clock.advance(60)

    await expire(database)

    assert await boxes_of(database, second) == ["ready"]


async def test_expired_blocked_run_frees_no_slot(database, clock):
    inside = await a_ready_run(database, concurrency=("one", 1))
    await staged(database)
    waiting = await a_ready_run(database, concurrency=("one", 1), expires_at=LATE)
    await staged(database)
    await clock.advance(60)

    await expire(database)

    assert (await boxes_of(database, inside), await boxes_of(database, waiting)) == (["ready"], [])
    assert await database.fetchval("select active from duly.concurrency_keys where key = 'one'") == 1


async def test_a_run_that_waits_for_its_destination_ends_too(database, clock):
    worker_id, run = await a_leased_run(database, expires_at=LATE)
    await defer(database, worker_id, [Deferred(run, START, WaitForDestination("https://ill.example"))])
    await clock.advance(60)

    assert await expire(database) == 1
    assert await history_of(database, run.run_id) == [(0, "skipped", "expired")]


async def test_expired_run_sends_its_callback(database, clock):
    await a_ready_run(database, expires_at=LATE, callbacks=Callbacks(end=Callback(url="https://hooks.example/done")))
    await clock.advance(60)

    await expire(database)

    told = "select payload->>'type' from duly.ready where handler = '@webhook'"
    assert await database.fetchval(told) == "duly.run.expired.v1"


async def test_fixed_delay_schedule_continues_when_a_run_expires(database, clock):
    trigger = {"type": "interval", "every": "PT60S", "mode": "fixed_delay"}
    job = a_schedule(trigger=trigger, options=options_of(expires_seconds=30))
    await submit_recurring(database, job, key=a_key())
    await clock.advance(60)
    await staged(database)
    await clock.advance(30)

    assert await expire(database) == 1

    due_at = await database.fetchval("select due_at from duly.timers where run_id is null")
    assert due_at == clock.at + seconds(60)


async def test_run_that_a_worker_finds_expired_counts_no_attempt(database, clock):
    worker_id, run = await a_leased_run(database, expires_at=LATE)
    await clock.advance(61)

    assert await settled(database, worker_id, run, Expired(LATE)) == []

    assert await boxes_of(database, run.run_id) == []
    assert await history_of(database, run.run_id) == [(0, "skipped", "expired")]


async def test_retry_past_the_expiry_is_not_scheduled(database, clock):
    worker_id, run = await a_leased_run(database, expires_at=LATE, retry=Retry(base_seconds=0))
    await settled(database, worker_id, run, Failed("busy"))
    [again] = await claimed(database, worker_id)
    await settled(database, worker_id, again, Failed("busy", retry_after=seconds(60)))

    assert await history_of(database, run.run_id) == [(1, "failed", "retrying"), (2, "failed", "expired")]
    assert "it expires at" in await reason_of(database, run.run_id)


async def test_replayed_run_keeps_its_expiry(database, clock):
    worker_id, run = await a_leased_run(database, expires_at=LATE)
    await settled(database, worker_id, run, Failed("broken", retryable=False))
    await clock.advance(61)

    await replay(database, [run.run_id])
    await expire(database)

    assert await history_of(database, run.run_id) == [(1, "failed", "dead"), (1, "skipped", "expired")]


async def test_batches_are_bounded_and_nothing_is_left(database, clock, monkeypatch):
    monkeypatch.setattr("duly.moves.waiting.EXPIRED_MAX", 2)
    for _ in range(5):
        await a_ready_run(database, expires_at=LATE)
    await clock.advance(60)

    assert await expire(database) == 5
    assert await counts(database) == {}


class TestLife:
    """What is known of a run's life is carried on, and leaves how it is run to its handler."""

    async def test_a_snooze_leaves_a_run_without_options_to_its_handler(self, database):
        worker_id, run = await a_leased_run(database)
        await settled(database, worker_id, run, Snoozed(seconds(0)))
        [again] = await claimed(database, worker_id)

        assert not again.policy.own
        assert (again.attempt, again.history.attempts_before) == (2, 1)

    async def test_options_that_say_the_defaults_keep_saying_so(self, database):
        worker_id = await a_worker(database)
        run_id = await a_ready_run(database)
        await database.execute("update duly.ready set options = '{\"own\": true}' where run_id = $1", run_id)
        [run] = await claimed(database, worker_id)
        await settled(database, worker_id, run, Snoozed(seconds(0)))
        [again] = await claimed(database, worker_id)

        assert again.policy.own
        assert again.history.attempts_before == 1

    async def test_age_counts_over_attempts_and_anew_after_a_replay(self, database, clock):
        retry = Retry(max_attempts=100, policy="fixed", base_seconds=40, jitter=0.0, max_age_seconds=100)
        worker_id, run = await a_leased_run(database, retry=retry)
        await settled(database, worker_id, run, Failed("no"))
        for _ in range(2):
            await clock.advance(40)
            await staged(database)
            worker_id = await a_worker(database)
            [run] = await claimed(database, worker_id)
            await settled(database, worker_id, run, Failed("no"))

        assert [became for _, _, became in await history_of(database, run.run_id)] == ["retrying", "retrying", "dead"]
        assert "max age of PT1M40S" in await reason_of(database, run.run_id)
        await replay(database, [run.run_id])
        [run] = await claimed(database, worker_id)
        assert (run.attempt, run.history.since) == (4, None)
        await settled(database, worker_id, run, Failed("no"))
        assert await boxes_of(database, run.run_id) == ["timers"]


async def test_a_run_that_expired_before_it_was_submitted_is_refused(database, clock):
    await clock.advance(3600)

    with pytest.raises(InvalidOption, match="in the past"):
        await a_ready_run(database, expires_at=START)

    assert await counts(database) == {}
