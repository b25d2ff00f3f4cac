"""Tell: whoever is named is told of the end of a run, whichever way it ends, once."""

import msgspec
import pytest

from duly.domain.runs.callbacks import Callback, Callbacks
from duly.domain.runs.options import options_of
from duly.domain.runs.outcome import Awaited, Cancelled, Failed, Lost, Snoozed, Succeeded, TimedOut
from duly.domain.runs.retry import Retry
from duly.log import Log
from duly.moves.cancel import STOP_TIMEOUT, cancel_job, cancel_run, void_overstayed
from duly.moves.completion_callbacks import deliver
from duly.moves.dead import discard, replay
from duly.moves.defer import Deferred, defer
from duly.moves.schedules.pause import pause
from duly.moves.settle import Settled, lose, settle
from duly.moves.submit import submit, submit_recurring
from duly.moves.workers.receive import time_out
from duly.store.boxes import history
from tests.builders import (
    HANDLER,
    RNG,
    a_key,
    a_leased_run,
    a_ready_run,
    a_schedule,
    a_submission,
    a_waiting_run,
    a_worker,
    an_active_schedule,
    claimed,
    counts,
    found_run,
    seconds,
    settled,
    staged,
)

URL = "https://hooks.example/done"
DEAD_URL = "https://hooks.example/dead"
DONE = Callbacks(end=Callback(url=URL))
BOTH = Callbacks(end=Callback(url=URL), failure=Callback(url=DEAD_URL))
ONCE = Retry(max_attempts=1)
LOG = Log("test")


async def told(database):
    """Read the webhooks that were made: each its URL and what it tells."""
    rows = await database.fetch(
        "select ready.options->'target'->>'url' as url, coalesce(ready.payload, payloads.body)::text as event"
        "  from duly.ready left join duly.payloads on payloads.job_id = ready.job_id"
        " where ready.handler = '@webhook' order by url"
    )
    return [(row["url"], msgspec.json.decode(row["event"])) for row in rows]


async def states_told(database):
    return [(url, event["data"]["state"], event["data"]["outcome"]) for url, event in await told(database)]


async def detail_of(database, run_id):
    return msgspec.json.decode((await found_run(database, run_id))["attempts"][-1]["detail"])


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Succeeded('{"rows": 7}'), [(URL, "succeeded", "succeeded")]),
        (Failed("broken"), [(DEAD_URL, "dead", "failed"), (URL, "dead", "failed")]),
        (TimedOut(5), [(DEAD_URL, "dead", "timed_out"), (URL, "dead", "timed_out")]),
        (Cancelled(), [(URL, "cancelled", "cancelled")]),
        (Snoozed(seconds(60)), []),
    ],
)
async def test_callback_is_sent_for_every_outcome_that_ends_the_run(database, outcome, expected):
    worker_id, run = await a_leased_run(database, callbacks=BOTH, retry=ONCE)

    await settled(database, worker_id, run, outcome)

    assert await states_told(database) == expected


async def test_callback_event_contains_all_facts_of_the_end(database, clock):
    worker_id, run = await a_leased_run(database, callbacks=DONE, tags=["night"])

    await settled(database, worker_id, run, Succeeded('{"rows": 7}'))

    [(_, event)] = await told(database)
    now = clock.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert event == {
        "specversion": "1.0",
        "id": f"{run.run_id}/1/{run.fence}/duly.run.succeeded.v1",
        "source": "/v1/runs",
        "type": "duly.run.succeeded.v1",
        "subject": str(run.run_id),
        "time": now,
        "datacontenttype": "application/json",
        "data": {
            "run_id": str(run.run_id),
            "job_id": str(run.job_id),
            "name": None,
            "state": "succeeded",
            "outcome": "succeeded",
            "attempt": 1,
            "queue": "default",
            "handler": HANDLER,
            "scheduled_at": now,
            "started_at": now,
            "finished_at": now,
            "reason": None,
            "result": {"rows": 7},
            "result_bytes": 11,
        },
    }


async def test_run_record_names_its_callback_run_and_keeps_no_address(database):
    worker_id, run = await a_leased_run(database, callbacks=DONE, tags=["night"])
    await settled(database, worker_id, run)

    made = await database.fetchval("select run_id::text from duly.ready where handler = '@webhook'")
    assert await detail_of(database, run.run_id) == {"callbacks": {"on_end": {"run_id": made}}}
    metadata = await database.fetchval("select metadata::text from duly.attempts where run_id = $1", run.run_id)
    assert msgspec.json.decode(metadata) == {"tags": ["night"]}


async def test_retry_sends_no_callback_and_stores_no_address(database):
    worker_id, run = await a_leased_run(database, callbacks=BOTH)
    await settled(database, worker_id, run, Failed("busy"))

    assert await told(database) == []
    assert await database.fetchval("select count(*) from duly.attempts where metadata is not null") == 0
    assert (await counts(database)) == {"ready": 1}


@pytest.mark.parametrize("where", ["waiting", "ready", "blocked", "leased ahead"])
async def test_cancel_sends_a_callback_in_every_state_of_the_run(database, where):
    if where == "waiting":
        run_id = await a_waiting_run(database, callbacks=DONE)
    elif where == "blocked":
        for _ in range(2):
            run_id = await a_ready_run(database, callbacks=DONE, concurrency=("one", 1))
        await staged(database)
        run_id = await database.fetchval("select run_id from duly.blocked")
    else:
        run_id = await a_ready_run(database, callbacks=DONE)
    if where == "leased ahead":
        worker_id = await a_worker(database)
        [run] = await claimed(database, worker_id)
        await cancel_run(database, run_id)
        await settle(database, worker_id, [Settled(run, None, None, Failed("busy"))], RNG)
    else:
        await cancel_run(database, run_id, "enough")

    [(url, event)] = await told(database)
    assert (url, event["data"]["run_id"], event["data"]["state"]) == (URL, str(run_id), "cancelled")


async def test_callback_is_sent_when_a_loss_ends_the_run_as_dead(database):
    worker_id, run = await a_leased_run(database, callbacks=BOTH, retry=ONCE)

    await lose(database, worker_id, [(run, Lost())], RNG)

    assert await states_told(database) == [(DEAD_URL, "dead", "lost"), (URL, "dead", "lost")]


async def test_callback_is_sent_when_the_receiver_times_out(database, clock):
    worker_id, run = await a_leased_run(database, callbacks=BOTH, retry=ONCE)
    await defer(database, worker_id, [Deferred(run, clock.at, Awaited(60))])
    await clock.advance(60)

    await time_out(database, RNG)

    assert await states_told(database) == [(DEAD_URL, "dead", "timed_out"), (URL, "dead", "timed_out")]


async def test_cancel_of_a_run_that_awaits_its_receiver_sends_a_callback(database, clock):
    worker_id, run = await a_leased_run(database, callbacks=DONE)
    await defer(database, worker_id, [Deferred(run, clock.at, Awaited(60))])

    await cancel_run(database, run.run_id)

    assert await states_told(database) == [(URL, "cancelled", "cancelled")]


async def test_callback_is_sent_for_a_run_that_ignores_the_stop_timeout(database, clock):
    options = options_of(callbacks=DONE)
    await an_active_schedule(database, every=60, overlap={"policy": "cancel_running"}, options=options)
    await clock.advance(60)
    await staged(database)
    await claimed(database, await a_worker(database))
    await clock.advance(60)
    await staged(database)
    await clock.advance(STOP_TIMEOUT)

    assert len(await void_overstayed(database)) == 1
    assert await states_told(database) == [(URL, "cancelled", "lost")]


async def test_repeated_settle_sends_a_single_callback(database):
    worker_id, run = await a_leased_run(database, callbacks=DONE)
    for _ in range(2):
        await settled(database, worker_id, run)

    assert len(await told(database)) == 1


async def test_outcome_reported_after_the_run_is_lost_sends_no_callback(database):
    worker_id, run = await a_leased_run(database, callbacks=DONE)
    await lose(database, worker_id, [(run, Lost())], RNG)

    await settled(database, worker_id, run)

    assert await told(database) == []


async def test_replayed_run_sends_its_callback_again_and_a_discard_sends_none(database):
    callbacks = Callbacks(failure=Callback(url=DEAD_URL))
    worker_id, run = await a_leased_run(database, callbacks=callbacks, retry=ONCE)
    await settled(database, worker_id, run, Failed("broken"))
    await replay(database, [run.run_id])
    [again] = await claimed(database, worker_id)
    await settled(database, worker_id, again, Failed("broken"))
    assert len(await told(database)) == 2

    await discard(database, [run.run_id])

    assert len(await told(database)) == 2


async def test_callback_is_an_ordinary_webhook_run_without_callbacks(database):
    worker_id, run = await a_leased_run(database, callbacks=DONE, queue="default")
    await settled(database, worker_id, run)

    row = dict(await database.fetchrow("select * from duly.ready where handler = '@webhook'"))
    assert msgspec.json.decode(row["options"]) == {"target": {"type": "webhook", "url": URL}}
    assert (row["queue"], row["run_id"], row["attempt"]) == ("default", row["job_id"], 0)
    assert await history.verify(database) == []


async def test_callback_goes_to_the_queue_that_it_names(database):
    worker_id, run = await a_leased_run(database, callbacks=Callbacks(end=Callback(url=URL, queue="hooks")))
    await settled(database, worker_id, run)

    assert await database.fetchval("select queue from duly.ready where handler = '@webhook'") == "hooks"


async def test_callback_option_leaves_the_retry_policy_to_the_handler(database):
    worker_id = await a_worker(database)
    options = options_of(callbacks=DONE)
    await submit(database, msgspec.structs.replace(a_submission(), options=options), key=a_key())

    [run] = await claimed(database, worker_id)

    assert not run.policy.own  # Its handler's retries stay its own.
    await settled(database, worker_id, run)
    assert len(await told(database)) == 1


class TestCallbackJob:
    """Another job is triggered with the outcome, as if somebody had asked for it."""

    async def ended(self, database, job="follow-up", outcome=None, result="7"):
        worker_id, run = await a_leased_run(database, callbacks=Callbacks(end=Callback(job=job)), retry=ONCE)
        await settled(database, worker_id, run, outcome or Succeeded(result))
        return worker_id, run

    async def test_callback_job_receives_the_outcome_together_with_its_own_payload(self, database):
        job = await an_active_schedule(database, name="follow-up", payload='{"to": "ops"}')
        worker_id, run = await self.ended(database)
        assert await deliver(database, LOG) == 1

        [made] = await claimed(database, worker_id)
        payload = msgspec.json.decode(made.payload or "")
        assert made.job_id == job.job_id
        assert (payload["to"], payload["event"]["data"]["run_id"]) == ("ops", str(run.run_id))
        assert payload["event"]["data"]["result"] == 7
        told = (await detail_of(database, run.run_id))["callbacks"]
        assert told == {"on_end": {"job": "follow-up", "job_id": str(job.job_id)}}

    async def test_callback_job_can_be_named_by_its_id(self, database):
        job = await an_active_schedule(database)
        worker_id, _ = await self.ended(database, str(job.job_id))
        await deliver(database, LOG)

        assert [run.job_id for run in await claimed(database, worker_id)] == [job.job_id]

    async def test_callback_job_is_triggered_only_once_per_end(self, database):
        await an_active_schedule(database, name="follow-up")
        await self.ended(database)

        assert [await deliver(database, LOG), await deliver(database, LOG)] == [1, 0]
        assert await counts(database) == {"timers": 1, "ready": 1}

    async def test_callback_job_obeys_its_own_overlap_policy(self, database):
        await an_active_schedule(database, name="follow-up", overlap={"policy": "skip"})
        for _ in range(2):
            await self.ended(database)
        await deliver(database, LOG)

        reasons = await database.fetch("select reason from duly.attempts where outcome = 'skipped'")
        assert [row["reason"] for row in reasons] == ["skipped_overlap"]
        assert (await counts(database))["ready"] == 1

    @pytest.mark.parametrize("state", ["never was", "over", "paused", "another tenant's"])
    async def test_unavailable_callback_job_is_recorded_as_skipped_without_an_error(self, database, state):
        expected = {"job": "follow-up", "skipped": "no such job"}
        job = await an_active_schedule(database, name="another" if state == "never was" else "follow-up")
        if state == "over":
            await cancel_job(database, job.job_id)
        elif state == "paused":
            await pause(database, job.job_id, "for now")
            expected = {"job": "follow-up", "skipped": "the job is paused"}
        elif state == "another tenant's":
            await database.execute("update duly.jobs set tenant = 2")

        _, run = await self.ended(database)

        assert (await found_run(database, run.run_id))["state"] == "succeeded"
        assert (await detail_of(database, run.run_id))["callbacks"] == {"on_end": expected}
        assert await deliver(database, LOG) == 0

    @pytest.mark.parametrize("state", ["paused", "over"])
    async def test_callback_job_paused_or_cancelled_meanwhile_is_recorded_as_skipped(self, database, state):
        job = await an_active_schedule(database, name="follow-up")
        await self.ended(database)
        await (pause(database, job.job_id, "for now") if state == "paused" else cancel_job(database, job.job_id))

        assert await deliver(database, LOG) == 1
        [row] = await database.fetch(
            "select job_id, outcome::text from duly.attempts where reason = $1", f"skipped_{state}"
        )
        assert tuple(row) == (job.job_id, "skipped")

    async def test_callback_job_with_too_large_a_payload_is_recorded_as_skipped(self, database):
        large = msgspec.json.encode({"text": "x" * 250_000}).decode()
        await submit_recurring(database, a_schedule(name="follow-up", payload=large), key=a_key())
        await self.ended(database, result=msgspec.json.encode("y" * 60_000).decode())

        await deliver(database, LOG)

        [row] = await database.fetch("select reason from duly.attempts where outcome = 'skipped'")
        assert row["reason"] == "skipped_too_large"

    async def test_locked_callback_job_delays_delivery_once_and_blocks_no_other(self, database, caplog):
        held = await an_active_schedule(database, name="held")
        for _ in range(3):
            await self.ended(database, "held")
        await an_active_schedule(database, name="follow-up")
        await self.ended(database)

        async with database.transaction() as long:
            await long.execute("select from duly.timers where job_id = $1 for update", held.job_id)
            assert await deliver(database, LOG) == 1
        assert [record.getMessage() for record in caplog.records] == ["completion_callback_delayed"]
        assert await deliver(database, LOG) == 3

    async def test_failing_callbacks_block_no_other(self, database, monkeypatch, caplog):
        monkeypatch.setattr("duly.moves.completion_callbacks.BATCH_MAX", 2)
        await an_active_schedule(database, name="follow-up")
        for _ in range(3):
            await self.ended(database)
        await database.execute(
            "insert into duly.idempotency_keys (tenant, key, job_id, body_hash, scheduled_at, expires_at)"
            " select tenant, format('trigger/%s/callback/%s', job_id, callback_id), job_id, '', created_at, 'infinity'"
            " from duly.completion_callbacks"
        )
        await self.ended(database)

        assert await deliver(database, LOG) == 1
        assert [record.getMessage() for record in caplog.records] == ["completion_callback_failed"] * 3

    async def test_a_job_may_tell_itself(self, database):
        callbacks = Callbacks(end=Callback(job="again"))
        await an_active_schedule(database, name="again", options=options_of(callbacks=callbacks))
        worker_id, _ = await self.ended(database, "again")
        for _ in range(2):
            await deliver(database, LOG)
            [run] = await claimed(database, worker_id)
            await settled(database, worker_id, run)

        assert await deliver(database, LOG) == 1


async def test_callback_omits_a_result_that_is_too_large_and_gives_its_size(database):
    worker_id, run = await a_leased_run(database, callbacks=DONE)
    text = msgspec.json.encode(
        ["y"] * 16_000
    ).decode()  # Within the limit as it was sent, and beyond it with its blanks.
    await settled(database, worker_id, run, Succeeded(text))

    [(_, event)] = await told(database)
    assert event["data"]["result"] is None
    assert event["data"]["result_bytes"] > 65_536


async def test_plain_runs_bear_no_trace_of_it(database):
    worker_id, run = await a_leased_run(database, tags=["night"])
    await settled(database, worker_id, run)

    assert (await found_run(database, run.run_id))["attempts"][0]["detail"] is None
