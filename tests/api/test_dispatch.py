"""The one way in: who asks, keys that are answered the same, shapes, and answers that say what is wrong."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from duly.store.retention import Expiring, forget_expired
from tests.api.front import A_TARGET, EVERY_HOUR
from tests.hints import a_submit_that_stays_open, listening

NDJSON = {"Content-Type": "application/x-ndjson"}
EVERY_DAY = {"trigger": {"type": "cron", "expr": "0 3 * * *"}}  # its first is hours away
ONE_SHOT = {"target": A_TARGET, "payload": {"customer": 7}}


async def stored(database, table="ready"):
    return await database.fetchval(f"select count(*) from duly.{table}")


class TestApiKeyAuth:
    @pytest.mark.parametrize(
        "authorization",
        [
            None,
            "",
            "Bearer",
            "Bearer duly_nothing",
            "Basic dXNlcjpwYXNz",
            "Bearer duly_aaaaaaaaaa_" + "a" * 39,
        ],
    )
    async def test_without_a_valid_key_everything_is_401_and_sounds_the_same(self, front, authorization):
        headers = {} if authorization is None else {"Authorization": authorization}
        answer = await front.client.get("/v1/calendars", headers=headers)

        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert (answer.json()["code"], answer.json()["detail"]) == ("unauthorized", "The request carries no valid key.")

    async def test_the_right_id_with_another_secret_is_401(self, front, api):
        stolen = api.key[:-1] + ("a" if api.key[-1] != "a" else "b")

        answer = await front.client.get("/v1/calendars", headers={"Authorization": f"Bearer {stolen}"})

        assert answer.status_code == 401

    async def test_a_revoked_key_is_refused_within_five_seconds(self, front, api, database, clock):
        assert (await api.get("/v1/calendars")).status_code == 200
        await database.execute("update duly.api_keys set revoked_at = duly.clock_now() where key_id = $1", api.key_id)

        await clock.advance(timedelta(seconds=4))

        assert (await api.get("/v1/calendars")).status_code == 401

    async def test_an_expired_key_is_refused(self, front, database, clock):
        brief = await front.caller("jobs:read", expires_at=await database.read_clock() + timedelta(minutes=1))
        assert (await brief.get("/v1/calendars")).status_code == 200

        await clock.advance(timedelta(minutes=1))

        assert (await brief.get("/v1/calendars")).status_code == 401

    async def test_api_key_records_its_last_use_to_the_minute(self, api, database, clock):
        async def last_used():
            return await database.fetchval("select last_used_at from duly.api_keys where key_id = $1", api.key_id)

        async def noted(after) -> bool:
            for _ in range(200):
                if (seen := await last_used()) is not None and seen >= after:
                    return True
                await asyncio.sleep(0.01)
            return False

        await api.get("/v1/calendars")
        assert await noted(first := await database.read_clock())

        await clock.advance(timedelta(seconds=30))
        await api.get("/v1/calendars")
        await clock.advance(timedelta(seconds=31))
        assert await last_used() == first
        await api.get("/v1/calendars")
        assert await noted(first + timedelta(seconds=61))

    async def test_request_without_the_scope_names_the_missing_scope(self, front):
        reader = await front.caller("jobs:read")

        answer = await reader.post("/v1/jobs", json=ONE_SHOT)

        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        assert "jobs:write" in answer.json()["detail"]

    async def test_write_scope_permits_reads_but_not_triggers(self, front, api):
        job = await api.a_job()
        writer = await front.caller("jobs:write")

        assert (await writer.get(f"/v1/jobs/{job['job_id']}")).status_code == 200
        assert (await writer.post(f"/v1/jobs/{job['job_id']}/trigger")).status_code == 403


class TestKey:
    async def test_the_same_request_is_answered_the_same_and_done_once(self, api, database):
        first = await api.post("/v1/jobs", json=ONE_SHOT, headers={"Idempotency-Key": "k1"})
        again = await api.post("/v1/jobs", json=ONE_SHOT, headers={"Idempotency-Key": "k1"})

        assert (first.status_code, again.status_code) == (202, 202)
        assert first.json() == again.json()
        assert first.headers["location"] == again.headers["location"]
        assert "idempotency-replayed" not in first.headers
        assert again.headers["idempotency-replayed"] == "true"
        assert await stored(database) == 1

    async def test_another_body_under_the_same_key_is_422(self, api, database):
        await api.post("/v1/jobs", json=ONE_SHOT, headers={"Idempotency-Key": "k1"})
        other = await api.post("/v1/jobs", json={"target": A_TARGET}, headers={"Idempotency-Key": "k1"})

        assert (other.status_code, other.json()["code"]) == (422, "key_reused")
        assert await stored(database) == 1

    async def test_another_path_under_the_same_key_is_422(self, api):
        one, two = await api.a_job(), await api.a_job()
        headers = {"Idempotency-Key": "k1"}
        assert (await api.post(f"/v1/jobs/{one['job_id']}/trigger", headers=headers)).status_code == 202

        answer = await api.post(f"/v1/jobs/{two['job_id']}/trigger", headers=headers)

        assert (answer.status_code, answer.json()["code"]) == (422, "key_reused")

    async def test_while_the_first_is_under_way_the_second_is_409(self, api, sessions):
        async with sessions.open(1) as session:
            await session.fetch("select pg_advisory_xact_lock(hashtextextended('1 create_job k1', 0))")
            answer = await api.post("/v1/jobs", json=ONE_SHOT, headers={"Idempotency-Key": "k1"})

        assert (answer.status_code, answer.json()["code"]) == (409, "key_in_progress")
        assert answer.headers["retry-after"] == "1"

    async def test_of_many_at_once_one_is_done(self, api, database):
        headers = {"Idempotency-Key": "k1"}
        answers = await asyncio.gather(*(api.post("/v1/jobs", json=ONE_SHOT, headers=headers) for _ in range(20)))

        assert {answer.status_code for answer in answers} <= {202, 409}
        assert len({answer.json()["job_id"] for answer in answers if answer.status_code == 202}) == 1
        assert await stored(database) == 1

    async def test_the_key_in_the_body_means_the_same(self, api, database):
        first = await api.post("/v1/jobs", json={**ONE_SHOT, "idempotency_key": "k1"})
        again = await api.post("/v1/jobs", json={**ONE_SHOT, "idempotency_key": "k1"})

        assert first.json() == again.json()
        assert again.headers["idempotency-replayed"] == "true"
        assert await stored(database) == 1

    async def test_two_keys_that_differ_are_422(self, api):
        answer = await api.post(
            "/v1/jobs", json={**ONE_SHOT, "idempotency_key": "k1"}, headers={"Idempotency-Key": "k2"}
        )

        assert (answer.status_code, answer.json()["code"]) == (422, "key_mismatch")
        assert "'k2' and the body 'k1'" in answer.json()["detail"]

    @pytest.mark.parametrize("key", ["", "  ", "a\nb", "x" * 201])
    async def test_a_key_in_the_body_that_is_none_is_refused_with_its_field(self, api, key):
        answer = await api.post("/v1/jobs", json={**ONE_SHOT, "idempotency_key": key})

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_body")
        assert [fault["pointer"] for fault in answer.json()["errors"]] == ["/idempotency_key"]

    async def test_a_moment_now_past_is_answered_as_it_was(self, api, database, clock):
        soon = (await database.read_clock() + timedelta(minutes=5)).isoformat()
        body = {"target": A_TARGET, "schedule": {"trigger": {"type": "at", "at": soon}}}
        first = await api.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k1"})
        await clock.advance(timedelta(hours=2))

        again = await api.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k1"})

        assert (first.status_code, again.status_code) == (202, 202)
        assert first.json() == again.json()
        assert (await api.post("/v1/jobs", json=body)).status_code == 422

    @pytest.mark.parametrize(
        ("wrong", "status"),
        [
            ('{"target": ', 400),
            ({"target": {"type": "function"}}, 422),
            ({"target": A_TARGET, "schedule": {"trigger": {"type": "cron", "expr": "61 * * * *"}}}, 422),
            ({"target": A_TARGET, "schedule": {"trigger": {"type": "at", "at": "2020-01-01T00:00Z"}}}, 422),
        ],
    )
    async def test_a_request_that_is_refused_leaves_its_key_free(self, api, database, wrong, status):
        headers = {"Idempotency-Key": "k1"}
        content = wrong if isinstance(wrong, str) else msgspec.json.encode(wrong)
        first = await api.post("/v1/jobs", content=content, headers={**headers, "Content-Type": "application/json"})
        assert first.status_code == status
        assert await stored(database, "idempotent_responses") == 0

        mended = await api.post("/v1/jobs", json=ONE_SHOT, headers=headers)
        again = await api.post("/v1/jobs", json=ONE_SHOT, headers=headers)

        assert (mended.status_code, again.status_code) == (202, 202)
        assert again.headers["idempotency-replayed"] == "true"
        assert again.json()["job_id"] == mended.json()["job_id"]
        assert await stored(database) == 1

    async def test_not_found_or_conflict_response_leaves_the_idempotency_key_free(self, api):
        headers = {"Idempotency-Key": "k1"}
        made = await api.a_job(name="taken")
        body = {"target": A_TARGET, "name": "taken", "schedule": EVERY_HOUR}
        assert (await api.post("/v1/jobs", json=body, headers=headers)).status_code == 409
        missing = "/v1/jobs/00000000-0000-4000-8000-000000000000/trigger"
        assert (await api.post(missing, headers=headers)).status_code == 404

        await api.delete(f"/v1/jobs/{made['job_id']}")

        assert (await api.post("/v1/jobs", json=body, headers=headers)).status_code == 202

    async def test_after_a_day_the_key_is_free(self, api, clock):
        first = await api.post("/v1/jobs", json=ONE_SHOT, headers={"Idempotency-Key": "k1"})
        await clock.advance(timedelta(hours=25))

        later = await api.post("/v1/jobs", json={"target": A_TARGET}, headers={"Idempotency-Key": "k1"})

        assert later.status_code == 202
        assert later.json()["job_id"] != first.json()["job_id"]

    async def test_answers_are_kept_for_a_day_and_no_longer(self, api, database, clock):
        await api.post("/v1/jobs", json=ONE_SHOT, headers={"Idempotency-Key": "k1"})
        await clock.advance(timedelta(hours=23))
        await api.post("/v1/jobs", json=ONE_SHOT, headers={"Idempotency-Key": "k2"})

        await clock.advance(timedelta(hours=2))
        await forget_expired(database, Expiring.ANSWERS, 100)

        assert [row[0] for row in await database.fetch("select key from duly.idempotent_responses")] == ["k2"]

    async def test_keys_of_two_tenants_have_nothing_to_do_with_each_other(self, front, api):
        stranger = await front.stranger()
        ours = await api.post("/v1/jobs", json=ONE_SHOT, headers={"Idempotency-Key": "k1"})
        theirs = await stranger.post("/v1/jobs", json={"target": A_TARGET}, headers={"Idempotency-Key": "k1"})

        assert (ours.status_code, theirs.status_code) == (202, 202)
        assert ours.json()["job_id"] != theirs.json()["job_id"]

    @pytest.mark.parametrize("key", ["", "x" * 201])
    async def test_a_key_that_is_none_is_refused(self, api, key):
        answer = await api.post("/v1/jobs", json=ONE_SHOT, headers={"Idempotency-Key": key})

        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_header")


class TestAnswers:
    async def test_response_returns_the_request_id(self, api):
        answer = await api.get("/v1/calendars", headers={"X-Request-ID": "mine-7"})
        assert answer.headers["x-request-id"] == "mine-7"

        made_up = (await api.get("/v1/calendars")).headers["x-request-id"]
        assert made_up
        assert made_up != "mine-7"

    @pytest.mark.parametrize("path", ["/v1/nothing", "/nothing", "/v1/jobs/xyz/nothing"])
    async def test_an_unknown_path_is_a_problem(self, api, path):
        answer = await api.get(path)

        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == "not_found"
        assert f"'{path}'" in answer.json()["detail"]
        assert answer.headers["x-content-type-options"] == "nosniff"

    async def test_unsupported_method_returns_405_and_lists_the_allowed_methods(self, api):
        answer = await api.put("/v1/jobs", json={})

        assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
        assert "POST" in answer.headers["allow"]
        assert answer.json()["detail"] == "PUT is not served at '/v1/jobs'; GET, HEAD, OPTIONS, POST are."

    async def test_head_request_returns_the_headers_of_a_get_without_its_body(self, api, front):
        job = await api.a_job(name="ours")
        path = f"/v1/jobs/{job['job_id']}"
        whole, head = await api.get(path), await api.ask("HEAD", path)

        assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", whole.headers["etag"])
        assert (await api.ask("HEAD", f"{path}0")).status_code == (await api.get(f"{path}0")).status_code
        assert (await (await front.stranger()).ask("HEAD", path)).status_code == 404
        assert (await api.ask("HEAD", "/v1/events")).headers["content-type"].startswith("text/event-stream")
        refused = await api.ask("HEAD", "/v1/jobs:batch")
        assert (refused.status_code, sorted(refused.headers["allow"].split(", "))) == (405, ["OPTIONS", "POST"])

    async def test_internal_error_returns_500_without_its_cause(self, api, monkeypatch):
        async def broken(*_):
            raise RuntimeError("the secret is swordfish")

        monkeypatch.setattr("duly.store.tables.schedules.calendars", broken)
        answer = await api.get("/v1/calendars")

        assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
        assert "swordfish" not in answer.text

    async def test_invalid_body_error_points_to_the_field(self, api):
        answer = await api.post("/v1/jobs", json={"target": A_TARGET, "prioritty": 1})

        assert answer.status_code == 422
        assert answer.json()["errors"] == [
            {"pointer": "/prioritty", "message": "is not a field here; did you mean priority?"}
        ]

    async def test_invalid_schedule_error_points_to_its_field_in_the_body(self, api):
        schedule = {"trigger": {"type": "cron", "expr": "61 * * * *"}}
        answer = await api.post("/v1/jobs", json={"target": A_TARGET, "schedule": schedule})

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_schedule")
        [error] = answer.json()["errors"]
        assert (error["pointer"], error["code"]) == ("/schedule/trigger/expr", "CRON_RANGE")

    async def test_an_unknown_parameter_is_refused_with_the_nearest(self, api):
        job = await api.a_job()
        answer = await api.delete(f"/v1/jobs/{job['job_id']}?runing=stop")

        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_query")
        assert "did you mean running" in answer.json()["detail"]

    async def test_another_media_type_is_415(self, api):
        answer = await api.post("/v1/jobs", content=b"{}", headers={"Content-Type": "text/plain"})

        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")

    async def test_a_body_is_taken_up_to_its_limit(self, api):
        def body(length: int) -> bytes:
            text = b'{"target": {"type": "function", "handler": "a:b"}}'
            return text + b" " * (length - len(text))

        headers = {"Content-Type": "application/json"}
        assert (await api.post("/v1/jobs", content=body(1_048_576), headers=headers)).status_code == 202
        assert (await api.post("/v1/jobs", content=body(1_048_577), headers=headers)).status_code == 413

    async def test_headers_are_taken_up_to_their_limit(self, api):
        answer = await api.get("/v1/calendars", headers={"X-Padding": "x" * 8_192})

        assert (answer.status_code, answer.json()["code"]) == (431, "headers_too_large")

    async def test_unavailable_database_returns_503_with_retry_after(self, api, sessions, database):
        assert (await api.get("/v1/calendars")).status_code == 200
        await sessions.close()

        answer = await api.get("/v1/calendars")

        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert answer.headers["retry-after"] == "1"


class TestTenants:
    async def test_job_of_another_tenant_is_not_found_like_an_unknown_job(self, front, api):
        job = await api.a_job(name="ours")
        stranger = await front.stranger()
        unknown = "00000000-0000-4000-8000-000000000000"

        theirs = await stranger.get(f"/v1/jobs/{job['job_id']}")
        nobodys = await stranger.get(f"/v1/jobs/{unknown}")

        assert (theirs.status_code, nobodys.status_code) == (404, 404)
        assert theirs.json()["detail"].replace(job["job_id"], unknown) == nobodys.json()["detail"]

    async def test_two_tenants_may_use_one_name(self, front, api):
        stranger = await front.stranger()

        assert (await api.a_job(name="report"))["job_id"] != (await stranger.a_job(name="report"))["job_id"]


async def test_a_job_due_now_wakes_the_workers_of_its_queue_with_the_commit(api, front, database):
    async with listening(database.url) as heard:
        created = await api.post("/v1/jobs", json={**ONE_SHOT, "queue": "mail"})
        await api.post("/v1/jobs", json={**ONE_SHOT, "queue": "slow", "schedule": EVERY_DAY})

        assert await heard.all() == [("mail", A_TARGET["handler"])], created.text
    assert front.woken == []


async def test_beside_a_transaction_that_stays_open_the_wake_up_follows_the_commit(api, front, database):
    async with a_submit_that_stays_open(database.url):
        await api.post("/v1/jobs", json={**ONE_SHOT, "queue": "mail"})
        await api.post("/v1/jobs", json={**ONE_SHOT, "queue": "slow", "schedule": EVERY_DAY})

    assert front.woken == ["mail"]


@pytest.mark.parametrize("way", ["alone", "in a batch"])
async def test_a_job_with_a_name_that_is_due_now_wakes_the_schedulers(api, front, way):
    named = {**ONE_SHOT, "name": "report"}
    if way == "alone":
        made = await api.post("/v1/jobs", json=named)
    else:
        made = await api.post("/v1/jobs:batch", content=msgspec.json.encode(named), headers=NDJSON)

    assert made.is_success, made.text
    assert front.woken == ["@due"]
