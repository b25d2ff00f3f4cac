"""Workers over HTTP: the life of a run in their hands, told from outside, with a clock that moves when it is told to."""

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from duly.clock import Rng
from duly.domain.errors import NotFound
from duly.domain.limits.pause import Scope
from duly.log import Log
from duly.maintenance.reaper import Reaper
from duly.moves.admin.pause import pause_scope, resume_scope
from duly.moves.reclaim import reclaim
from duly.store.boxes import runs
from duly.store.tables import remote_workers, workers
from tests.api.remote import LEASE_SECONDS, Remote, a_job_due_now, a_remote, lease_of
from tests.builders import a_leased_run, counts

RETRY_AT_ONCE = {"max_attempts": 5, "base": 0.001, "cap": 0.001}


@pytest.fixture
async def remote(api) -> Remote:
    return await a_remote(api)


async def found_run(database, run_id: str) -> dict[str, Any]:
    found = await runs.find(database, UUID(run_id))
    assert found is not None
    return found


async def state_of(database, run_id: str) -> str:
    return str((await found_run(database, run_id))["state"])


async def outcomes_of(database, run_id: str) -> list[str]:
    return [attempt["outcome"] for attempt in (await found_run(database, run_id))["attempts"]]


async def reap(database, clock, seconds: float = LEASE_SECONDS + 1) -> None:
    """Let leases that are not renewed end, and move on what hung on them."""
    reaper = Reaper(database, rng=Rng(1), log=Log("test"))
    await reaper.step()
    await clock.advance(seconds)
    await reaper.step()


class TestRegister:
    async def test_registration_returns_the_lease_and_stores_the_worker_name(self, api, database):
        answer = await api.post(
            "/v1/worker/register",
            json={"name": "billing-7", "queues": ["mail", "mail"], "handlers": ["send"], "slots": 3, "lease": "PT30S"},
        )

        assert answer.status_code == 201
        told = answer.json()
        assert (told["lease_seconds"], told["renew_every_seconds"], told["start_within_seconds"]) == (30, 6, 20)
        [row] = [row for row in await workers.live(database) if str(row.worker_id) == told["worker_id"]]
        assert (str(row.worker_id), row.name, row.queues, row.slots) == (told["worker_id"], "billing-7", ["mail"], 3)

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"queues": []}, "invalid_body"),
            ({"handlers": []}, "invalid_body"),
            ({"slots": 0}, "invalid_body"),
            ({"slots": 1001}, "invalid_body"),
            ({"lease": "PT1S"}, "invalid_option"),
            ({"lease": "P1D"}, "invalid_option"),
            ({"lease": "soon"}, "invalid_option"),
            ({"name": "a\u0000b"}, "invalid_option"),
        ],
    )
    async def test_invalid_field_is_refused(self, api, fields, code):
        told = {"name": "x", "queues": ["default"], "handlers": ["send"], "slots": 1, **fields}

        answer = await api.post("/v1/worker/register", json=told)

        assert (answer.status_code, answer.json()["code"]) == (422, code)

    async def test_a_tenant_has_only_so_many(self, api, front, database, monkeypatch):
        monkeypatch.setattr("duly.store.tables.remote_workers.WORKERS_MAX", 2)
        await a_remote(api)
        await a_remote(api)
        told = {"name": "x", "queues": ["default"], "handlers": ["send"], "slots": 1}

        answer = await api.post("/v1/worker/register", json=told)

        assert (answer.status_code, answer.json()["code"]) == (429, "quota_reached")
        await a_remote(await front.stranger())

    async def test_registration_requires_the_worker_scope(self, front):
        for scopes in (("jobs:read",), ("jobs:write", "jobs:trigger")):
            caller = await front.caller(*scopes)
            answer = await caller.post("/v1/worker/register", json={})
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        await a_remote(await front.caller("worker"))


class TestClaim:
    async def test_claim_returns_every_field_that_the_handler_needs(self, api, remote, clock):
        job_id = await a_job_due_now(api, payload={"customer": 7}, timeout="PT30S", tags=["billing"], queue="default")

        [run] = await remote.claim()

        assert run["run_id"] == run["job_id"] == job_id
        assert (run["handler"], run["queue"], run["attempt"], run["suspect"]) == ("app:mail", "default", 1, False)
        assert run["payload"] == {"customer": 7}
        assert (run["checkpoint"], run["previous_scheduled_at"], run["tags"]) == (None, None, ["billing"])
        assert run["timeout"] == "PT30S"
        assert datetime.fromisoformat(run["deadline"]) == clock.at + timedelta(seconds=30)
        assert datetime.fromisoformat(run["due_at"]) == clock.at

    async def test_claim_returns_a_large_payload_in_full(self, api, remote):
        large = {"text": "x" * 100_000}
        await a_job_due_now(api, payload=large)

        [run] = await remote.claim()

        assert run["payload"] == large

    async def test_unrepresentable_expiry_does_not_block_claims(self, api, remote, database):
        odd, plain = await a_job_due_now(api), await a_job_due_now(api)
        await database.execute(  # milliseconds where seconds were meant
            "update duly.ready set options = coalesce(options, '{}') || '{\"expires_at\": 1799999999000}'"
            " where run_id = $1",
            UUID(odd),
        )

        assert (await api.get(f"/v1/jobs/{odd}")).json()["expires_at"].startswith("9999-01-01T00:00:00")
        assert {run["run_id"] for run in await remote.claim()} == {odd, plain}

    async def test_nothing_is_held_ahead_and_nothing_is_early(self, api, remote, clock):
        at = (clock.at + timedelta(seconds=3)).isoformat()
        await a_job_due_now(api, schedule={"trigger": {"type": "at", "at": at}})  # within the horizon: it is ready

        assert await remote.claim() == []
        await clock.advance(2.999)
        assert await remote.claim() == []
        await clock.advance(0.001)
        assert len(await remote.claim()) == 1

    async def test_future_run_of_high_priority_does_not_hide_a_due_run(self, api, remote, clock):
        at = (clock.at + timedelta(seconds=3)).isoformat()
        await a_job_due_now(api, schedule={"trigger": {"type": "at", "at": at}}, priority=0)
        due = await a_job_due_now(api, priority=9)

        assert [run["run_id"] for run in await remote.claim()] == [due]

    async def test_only_its_queues_and_handlers(self, api, remote):
        await a_job_due_now(api, queue="other")
        await a_job_due_now(api, target={"type": "function", "handler": "app:other"})

        assert await remote.claim() == []

    async def test_no_more_than_the_limit_and_never_more_than_it_has_slots(self, api):
        remote = await a_remote(api, slots=3)
        for _ in range(5):
            await a_job_due_now(api)

        first = await remote.claim(2)
        second = await remote.claim(2)

        assert (len(first), len(second), len(await remote.claim(2))) == (2, 1, 0)
        await remote.settle(first[0])
        assert len(await remote.claim(2)) == 1

    async def test_claim_waits_for_a_newly_submitted_run(self, api, remote, clock):
        waiting = asyncio.create_task(remote.claim(wait="PT20S"))
        await asyncio.sleep(0.05)
        assert not waiting.done()

        await a_job_due_now(api)

        assert len(await asyncio.wait_for(waiting, 20)) == 1

    async def test_claim_waits_for_a_run_that_becomes_due(self, api, remote, clock):
        at = (clock.at + timedelta(seconds=3)).isoformat()
        await a_job_due_now(api, schedule={"trigger": {"type": "at", "at": at}})
        waiting = asyncio.create_task(remote.claim(wait=20))
        await asyncio.sleep(0.05)
        assert not waiting.done()

        await clock.advance(3)

        assert len(await asyncio.wait_for(waiting, 20)) == 1

    async def test_claim_waits_no_longer_than_requested(self, remote, clock):
        waiting = asyncio.create_task(remote.claim(wait="PT2S"))
        await asyncio.sleep(0.05)
        assert not waiting.done()

        await clock.advance(2)

        assert await asyncio.wait_for(waiting, 20) == []

    async def test_while_it_waits_no_connection_is_held(self, api, remote, database):
        waiting = [asyncio.create_task(remote.ask("claim", number=n, wait=20)) for n in range(1, 30)]
        await asyncio.sleep(0.1)
        try:
            assert (await asyncio.wait_for(api.get("/v1/calendars"), 20)).status_code == 200
            assert await database.fetchval("select count(*) from pg_stat_activity where state like 'idle in%'") == 0
        finally:
            for task in waiting:
                task.cancel()

    async def test_claims_are_numbered_upwards(self, api, remote):
        await a_job_due_now(api)
        await remote.claim()
        await a_job_due_now(api)

        answer = await remote.ask("claim", number=remote.number)

        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert "next number" in answer.json()["detail"]
        assert len(await remote.claim()) == 1

    @pytest.mark.parametrize(
        ("body", "code"),
        [
            ({"number": 0}, "invalid_body"),
            ({}, "invalid_body"),
            ({"number": 1, "limit": 101}, "invalid_body"),
            ({"number": 1, "limit": 0}, "invalid_body"),
            ({"number": 1, "wait": "PT30.001S"}, "invalid_option"),
            ({"number": 1, "wait": -1}, "invalid_option"),
        ],
    )
    async def test_invalid_field_is_refused(self, remote, body, code):
        answer = await remote.ask("claim", **body)

        assert (answer.status_code, answer.json()["code"]) == (422, code)

    async def test_paused_run_is_not_claimed(self, api, remote, database):
        await a_job_due_now(api)
        for scope in (Scope(), Scope(queue="default"), Scope(tenant=1), Scope(tenant=1, queue="default")):
            await pause_scope(database, scope, reason="stop", paused_by="test")
            assert await remote.claim() == []
            await resume_scope(database, scope)
        await pause_scope(database, Scope(tenant=2), reason="stop", paused_by="test")
        await pause_scope(database, Scope(queue="other"), reason="stop", paused_by="test")

        assert len(await remote.claim()) == 1

    async def test_claim_by_an_unknown_worker_is_not_found(self, api):
        for worker_id in (uuid4(), "me"):
            answer = await api.post(f"/v1/worker/{worker_id}/claim", json={"number": 1})
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")

    async def test_claim_by_an_expired_worker_is_refused(self, api, remote, clock):
        await a_job_due_now(api)
        await clock.advance(LEASE_SECONDS)

        answer = await remote.ask("claim", number=1)

        assert (answer.status_code, answer.json()["code"]) == (409, "worker_expired")

    async def test_a_worker_that_is_late_to_renew_is_given_nothing_until_it_does(self, api, remote, clock):
        # What it started now would count as not started if it died, and another would get the same attempt.
        await clock.advance(LEASE_SECONDS * 2 / 3 + 1)
        await a_job_due_now(api)

        assert await remote.claim() == []
        await remote.renew()
        assert len(await remote.claim()) == 1

    async def test_concurrent_claims_share_the_ready_runs(self, api):
        made = {await a_job_due_now(api) for _ in range(20)}
        remotes = [await a_remote(api) for _ in range(4)]

        given = await asyncio.gather(*(remote.claim(5, wait=20) for remote in remotes))

        assert [len(runs) for runs in given] == [5, 5, 5, 5]
        assert {run["run_id"] for runs in given for run in runs} == made

    async def test_a_caller_that_hangs_up_takes_nothing(self, front, api, remote, database):
        gone = asyncio.Event()
        asked = asyncio.create_task(hang_up_on(front, remote, gone))
        await asyncio.sleep(0.05)

        gone.set()
        await asyncio.wait_for(asked, 20)
        await a_job_due_now(api)

        found = await counts(database)
        assert (found.get("ready"), found.get("leased")) == (1, None)


async def hang_up_on(front, remote: Remote, gone: asyncio.Event) -> None:
    """Ask for runs and hang up when told to, as a server tells the application of it."""
    body = [b'{"number": 1, "wait": 20}']
    path = f"/v1/worker/{remote.worker_id}/claim"
    headers = {"authorization": f"Bearer {remote.caller.key}", "content-type": "application/json"}

    async def receive():
        if body:
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(_):
        pass

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "http_version": "1.1",
        "scheme": "http",
        "server": ("duly", 80),
        "client": ("test", 1),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "extensions": {},
    }
    transport = front.client._transport
    assert isinstance(transport, httpx.ASGITransport)
    await transport.app(scope, receive, send)


class TestSettle:
    async def test_success_ends_the_run_and_stores_its_result(self, api, remote, database, clock):
        await a_job_due_now(api)
        [run] = await remote.claim()
        await clock.advance(2)
        started_at = (clock.at - timedelta(seconds=1)).isoformat()

        assert await remote.settle(run, result={"sent": 3}, started_at=started_at) == "settled"

        found = await found_run(database, run["run_id"])
        [attempt] = found["attempts"]
        assert (found["state"], attempt["outcome"], attempt["result"]) == ("succeeded", "succeeded", '{"sent": 3}')
        assert str(attempt["worker_id"]) == remote.worker_id
        assert attempt["started_at"] == clock.at - timedelta(seconds=1)

    @pytest.mark.parametrize("started_at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z"])
    async def test_a_start_by_another_clock_is_put_between_claim_and_now(
        self, api, remote, database, clock, started_at
    ):
        await a_job_due_now(api)
        [run] = await remote.claim()
        claimed_at = clock.at
        await clock.advance(2)

        assert await remote.settle(run, started_at=started_at) == "settled"

        [attempt] = (await found_run(database, run["run_id"]))["attempts"]
        assert claimed_at <= attempt["started_at"] <= clock.at

    async def test_a_failure_is_tried_again_and_then_waits_for_a_person(self, api, remote, database, clock):
        await a_job_due_now(api, retry={"max_attempts": 2, "base": 0.001, "cap": 0.001})
        error = {"type": "SmtpError", "message": "no route\u0000", "traceback": "line 1"}
        [first] = await remote.claim()

        assert await remote.settle(first, "failed", error=error) == "settled"
        await clock.advance(1)
        [second] = await remote.claim()
        assert (second["attempt"], second["fence"] > first["fence"]) == (2, True)
        assert await remote.settle(second, "failed", error=error) == "settled"

        found = await found_run(database, first["run_id"])
        assert (found["state"], found["reason"]) == ("dead", "SmtpError: no route\ufffd")
        assert '"traceback": "line 1"' in found["attempts"][0]["detail"]

    async def test_a_failure_that_no_retry_helps_is_buried_at_once(self, api, remote, database):
        await a_job_due_now(api)
        [run] = await remote.claim()

        await remote.settle(run, "failed", retryable=False)

        assert await state_of(database, run["run_id"]) == "dead"

    async def test_a_failure_may_say_when_to_try_again(self, api, remote, clock):
        await a_job_due_now(api, retry=RETRY_AT_ONCE)
        [run] = await remote.claim()

        await remote.settle(run, "failed", retry_after="PT4S")

        await clock.advance(3.9)
        assert await remote.claim() == []
        await clock.advance(0.1)
        assert len(await remote.claim()) == 1

    async def test_a_snooze_is_no_failure(self, api, remote, clock, database):
        await a_job_due_now(api, retry={"max_attempts": 1})
        [run] = await remote.claim()

        assert (await remote.ask("settle", outcomes=[{**lease_of(run), "outcome": "snoozed"}])).status_code == 422
        assert await remote.settle(run, "snoozed", snooze=2) == "settled"

        await clock.advance(2)
        [again] = await remote.claim()
        assert again["attempt"] == 2
        await remote.settle(again, "failed")
        assert await state_of(database, run["run_id"]) == "dead"

    @pytest.mark.parametrize(
        "said",
        [
            {"outcome": "succeeded", "error": {"type": "ValueError", "message": "no"}},
            {"outcome": "succeeded", "retryable": False},
            {"outcome": "succeeded", "retry_after": 5},
            {"outcome": "succeeded", "snooze": 5},
            {"outcome": "failed", "result": {"rows": 7}},
            {"outcome": "failed", "snooze": 5},
        ],
    )
    async def test_contradictory_outcome_is_refused_and_changes_nothing(self, api, remote, database, said):
        await a_job_due_now(api)
        [run] = await remote.claim()

        refused = await remote.ask("settle", outcomes=[{**lease_of(run), **said}])

        assert refused.status_code == 422
        assert run["run_id"] in refused.json()["detail"]
        assert await state_of(database, run["run_id"]) == "running"

    async def test_a_timeout_names_the_time_that_the_run_had(self, api, remote, database):
        await a_job_due_now(api, timeout="PT30S", retry={"max_attempts": 1})
        [run] = await remote.claim()

        await remote.settle(run, "timed_out")

        assert (await found_run(database, run["run_id"]))["reason"] == "timed out after 30 s"

    async def test_settle_repeated_after_a_lost_response_returns_the_same(self, api, remote, database):
        await a_job_due_now(api, retry=RETRY_AT_ONCE)
        [run] = await remote.claim()

        assert await remote.settle(run, "failed") == "settled"
        assert await remote.settle(run, "failed") == "settled"

        assert await outcomes_of(database, run["run_id"]) == ["failed"]

    async def test_an_outcome_with_an_old_fence_is_fenced_once_on_record_and_changes_nothing(
        self, api, remote, database, clock
    ):
        await a_job_due_now(api, retry=RETRY_AT_ONCE)
        [run] = await remote.claim()
        await reap(database, clock)
        await clock.advance(1)
        awake = await a_remote(api)
        [again] = await awake.claim()

        assert await remote.settle(run) == "fenced"
        assert await remote.settle(run) == "fenced"

        assert await state_of(database, run["run_id"]) == "running"
        assert await awake.settle(again) == "settled"
        assert await outcomes_of(database, run["run_id"]) == ["lost", "fenced", "succeeded"]

    async def test_each_outcome_is_judged_by_itself_and_the_first_word_counts(self, api, remote, database):
        for _ in range(3):
            await a_job_due_now(api)
        first, second, third = await remote.claim()
        outcomes = [
            {**lease_of(first), "outcome": "succeeded"},
            {"run_id": str(uuid4()), "fence": 1, "outcome": "succeeded"},
            {**lease_of(second), "outcome": "cancelled"},
            {**lease_of(third), "fence": third["fence"] + 1, "outcome": "succeeded"},
            {**lease_of(first), "outcome": "failed", "retryable": False},
        ]

        answer = await remote.ask("settle", outcomes=outcomes)

        statuses = [item["status"] for item in answer.json()["outcomes"]]
        assert statuses == ["settled", "fenced", "settled", "fenced", "settled"]
        assert [await state_of(database, run["run_id"]) for run in (first, second, third)] == [
            "succeeded",
            "cancelled",
            "running",
        ]

    async def test_text_that_cannot_be_stored_does_not_hold_up_the_others(self, api, remote, database):
        for _ in range(2):
            await a_job_due_now(api)
        given = await remote.claim()

        statuses = [await remote.settle(run, result={"text": "a\u0000b"}) for run in given]

        assert statuses == ["settled", "settled"]

    async def test_settle_wakes_the_queue_of_an_immediate_retry(self, front, api, remote):
        await a_job_due_now(api, retry=RETRY_AT_ONCE)
        [run] = await remote.claim()
        front.woken.clear()

        await remote.settle(run, "failed")

        assert front.woken == ["default"]


class TestRenew:
    async def test_renewal_extends_the_lease(self, api, remote, database, clock):
        await a_job_due_now(api)
        [run] = await remote.claim()
        reaper = Reaper(database, rng=Rng(1), log=Log("test"))
        told = {}
        for _ in range(4):
            told = await remote.renew(run)
            await reaper.step()
            await clock.advance(LEASE_SECONDS - 1)

        assert (told["until_seconds"], told["start_within_seconds"], told["lost"], told["cancel"]) == (15, 10, [], [])
        assert await remote.settle(run) == "settled"

    async def test_claim_with_a_lost_response_is_returned_unused(self, api, remote):
        await a_job_due_now(api)
        await a_job_due_now(api)
        [kept] = await remote.claim(1)
        [unheard] = await remote.claim(1)

        await remote.renew(kept)

        [again] = await remote.claim()
        assert (again["run_id"], again["attempt"]) == (unheard["run_id"], 1)
        assert await remote.settle(unheard) == "fenced"
        assert await remote.settle(kept) == "settled"

    async def test_claim_with_a_response_in_flight_keeps_its_lease(self, api, remote):
        # The renewal was written before the answer came, and arrives after the claim was made.
        await a_job_due_now(api)
        await a_job_due_now(api)
        [first] = await remote.claim(1)
        [on_its_way] = await remote.claim(1)

        await remote.renew(first, answered=1)

        assert await remote.settle(on_its_way) == "settled"

    async def test_lost_claim_is_returned_while_a_later_response_is_in_flight(self, api, remote):
        for _ in range(2):
            await a_job_due_now(api)
        [unheard] = await remote.claim(1)
        [on_its_way] = await remote.claim(1)

        await remote.renew(answered=1)

        assert await remote.settle(unheard) == "fenced"
        assert await remote.settle(on_its_way) == "settled"

    async def test_stale_renewal_returns_no_runs(self, api, remote):
        for _ in range(2):
            await a_job_due_now(api)
        given = [*await remote.claim(1), *await remote.claim(1)]

        await remote.renew(answered=0)

        assert [await remote.settle(run) for run in given] == ["settled", "settled"]

    async def test_renewal_lists_runs_to_cancel_and_lost_leases(self, api, remote, database):
        for _ in range(2):
            await a_job_due_now(api)
        stopped, settled = await remote.claim()
        await api.post(f"/v1/runs/{stopped['run_id']}/cancel")
        await runs.signal(database, [UUID(stopped["run_id"])], "cancel")
        await remote.settle(settled)

        told = await remote.renew(stopped, settled)

        assert (told["cancel"], told["lost"]) == ([lease_of(stopped)], [lease_of(settled)])
        assert await remote.settle(stopped, "cancelled") == "settled"
        assert await state_of(database, stopped["run_id"]) == "cancelled"

    async def test_renewal_does_not_list_a_settled_run_to_cancel(self, api, remote, database):
        await a_job_due_now(api)
        [run] = await remote.claim()
        await runs.signal(database, [UUID(run["run_id"])], "cancel")
        await remote.settle(run)
        assert await database.fetchval("select count(*) from duly.signals") == 1, "it is swept later"

        told = await remote.renew()

        assert (told["cancel"], told["lost"]) == ([], [])

    async def test_a_worker_that_was_reaped_is_not_known_any_more(self, api, remote, database, clock):
        await reap(database, clock)

        answer = await remote.ask("renew", leases=[], answered=0)

        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        assert "register" in answer.json()["detail"]


class TestMeetings:
    """Two at once, over two connections: the worker's row decides who comes first."""

    @pytest.fixture
    async def claiming(self, api, remote, sessions):
        """A claim that has taken a run and has not committed."""
        await a_job_due_now(api, retry=RETRY_AT_ONCE)
        return sessions.open(api.tenant)

    async def test_a_renewal_sees_a_claim_whole_or_not_at_all(self, remote, claiming):
        async with claiming as session:
            [lent] = await remote_workers.claim(session, UUID(remote.worker_id), 1, 10)
            renewal = asyncio.create_task(remote.renew(answered=0))
            await asyncio.sleep(0.1)
            assert not renewal.done()

        await renewal

        assert await remote.settle({"run_id": str(lent.run.run_id), "fence": lent.run.fence}) == "settled"

    async def test_the_reaper_waits_for_a_claim_and_sees_its_leases(self, remote, claiming, database):
        worker_id = UUID(remote.worker_id)
        async with claiming as session:
            [lent] = await remote_workers.claim(session, worker_id, 1, 10)
            reaping = asyncio.create_task(workers.expire(database, worker_id, 0, clock_stepped=True))
            await asyncio.sleep(0.1)
            assert not reaping.done()

        assert await reaping
        [gone] = await workers.expired_workers(database)
        assert [run.run_id for run in (await reclaim(database, gone, Rng(1))).moved] == [lent.run.run_id]

    async def test_after_the_reaper_nothing_is_claimed(self, remote, claiming, database):
        worker_id = UUID(remote.worker_id)
        assert await workers.expire(database, worker_id, 0, clock_stepped=True)

        with pytest.raises(NotFound):
            async with claiming as session:
                await remote_workers.claim(session, worker_id, 1, 10)


class TestDeath:
    async def test_its_runs_are_tried_again_as_suspects_one_at_a_time(self, api, remote, database, clock):
        for _ in range(3):
            await a_job_due_now(api, retry=RETRY_AT_ONCE)
        assert len(await remote.claim()) == 3

        await reap(database, clock)
        await clock.advance(1)
        fresh = await a_job_due_now(api)
        other = await a_remote(api)
        given = await other.claim()

        assert sorted((run["suspect"], run["attempt"]) for run in given) == [(False, 1), (True, 2)]
        assert [run["run_id"] for run in given if not run["suspect"]] == [fresh]
        assert await other.claim() == []
        [suspect] = [run for run in given if run["suspect"]]
        await other.settle(suspect)
        assert [run["suspect"] for run in await other.claim()] == [True]

    async def test_a_run_that_kills_its_workers_is_buried(self, api, database, clock):
        job_id = await a_job_due_now(api, retry={**RETRY_AT_ONCE, "max_attempts": 9})
        for attempt in range(1, 4):
            [run] = await (await a_remote(api)).claim()
            assert run["attempt"] == attempt
            await reap(database, clock)
            await clock.advance(1)

        found = await found_run(database, job_id)
        assert (found["state"], found["reason"]) == ("dead", "poison")

    async def test_a_late_claim_counts_its_attempt(self, api, remote, database, clock):
        await clock.advance(LEASE_SECONDS * 2 / 3)
        await a_job_due_now(api, retry=RETRY_AT_ONCE)
        [run] = await remote.claim()

        await reap(database, clock)

        assert await outcomes_of(database, run["run_id"]) == ["lost"]


class TestLeave:
    async def test_leave_returns_unstarted_runs_unused(self, api, remote, database):
        await a_job_due_now(api)
        [run] = await remote.claim()

        answer = await remote.leave()

        assert answer.json() == {"left": True, "returned": [lease_of(run)]}
        assert remote.worker_id not in {str(row.worker_id) for row in await workers.live(database)}
        [again] = await (await a_remote(api)).claim()
        assert (again["run_id"], again["attempt"]) == (run["run_id"], 1)

    async def test_leave_keeps_a_started_run_with_its_worker(self, api, remote):
        await a_job_due_now(api)
        [run] = await remote.claim()

        assert (await remote.leave(run)).json() == {"left": False, "returned": []}
        assert await remote.settle(run) == "settled"
        assert (await remote.leave()).json() == {"left": True, "returned": []}
        assert (await remote.leave()).status_code == 404


class TestWhileItRuns:
    async def test_progress_checkpoint_and_logs_are_kept(self, api, remote, database, clock):
        await a_job_due_now(api, retry=RETRY_AT_ONCE)
        [run] = await remote.claim()
        lines = [{"message": "half"}, {"message": "more\u0000", "level": "warning", "fields": {"n": 1}}]

        assert (await remote.ask("progress", **lease_of(run), done=3, total=6, note="half")).status_code == 204
        assert (await remote.ask("checkpoint", **lease_of(run), value={"page": 3})).status_code == 204
        assert (await remote.ask("logs", **lease_of(run), lines=lines)).json() == {"kept": 2}
        assert (await remote.ask("logs", **lease_of(run), lines=lines[:1])).json() == {"kept": 1}

        run_id = UUID(run["run_id"])
        assert await runs.read_progress(database, run_id) == {
            "done": 3,
            "total": 6,
            "fraction": 0.5,
            "note": "half",
            "updated_at": clock.at,
        }
        found = [
            (line["number"], line["level"], line["message"]) for line in await runs.read_logs(database, run_id, (0, 0))
        ]
        assert found == [(1, "info", "half"), (2, "warning", "more\ufffd"), (3, "info", "half")]
        await remote.settle(run, "failed")
        await clock.advance(1)
        [again] = await remote.claim()
        assert again["checkpoint"] == {"page": 3}

    async def test_of_the_log_of_an_attempt_only_so_much_is_kept(self, api, remote, monkeypatch):
        monkeypatch.setattr("duly.store.tables.remote_workers.LINES_MAX", 3)
        await a_job_due_now(api)
        [run] = await remote.claim()

        answers = [await remote.ask("logs", **lease_of(run), lines=[{"message": "x"}] * 2) for _ in range(3)]

        assert [answer.json()["kept"] for answer in answers] == [2, 1, 0]

    @pytest.mark.parametrize(
        ("verb", "body"),
        [("progress", {"done": 1}), ("checkpoint", {"value": 1}), ("logs", {"lines": [{"message": "x"}]})],
    )
    async def test_after_the_lease_nothing_is_written(self, api, remote, database, verb, body):
        await a_job_due_now(api)
        [run] = await remote.claim()
        old = {**lease_of(run), "fence": run["fence"] - 1}

        for lease in (old, {"run_id": str(uuid4()), "fence": 1}):
            answer = await remote.ask(verb, **lease, **body)
            assert (answer.status_code, answer.json()["code"]) == (409, "lease_lost")
        assert (await remote.ask(verb, **lease_of(run), **body)).is_success
        await remote.settle(run)
        assert (await remote.ask(verb, **lease_of(run), **body)).status_code == 409

    async def test_oversized_checkpoint_is_refused(self, api, remote):
        await a_job_due_now(api)
        [run] = await remote.claim()

        answer = await remote.ask("checkpoint", **lease_of(run), value="x" * 262_143)

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_payload")


class TestOurOwnWorkers:
    async def test_a_key_cannot_speak_for_a_worker_of_ours(self, api, database):
        worker_id, run = await a_leased_run(database)
        ours, held = Remote(api, str(worker_id)), {"run_id": str(run.run_id), "fence": run.fence}

        assert await ours.settle(held) == "fenced"
        assert (await ours.ask("progress", **held)).status_code == 409
        assert (await ours.ask("claim", number=1)).status_code == 404
        assert (await ours.ask("renew", leases=[], answered=0)).status_code == 404
        assert (await ours.leave()).status_code == 404
