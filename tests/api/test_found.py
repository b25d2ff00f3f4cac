"""Faults of the API that attackers found."""

import asyncio
from datetime import timedelta

import pytest

from tests.api.front import A_TARGET, EVERY_HOUR


async def test_a_string_that_is_not_closed_is_looked_at_once(api):
    body = b"[" * 100 + b'"' + b'\\"' * 200_000

    async with asyncio.timeout(20):
        answer = await api.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code in (400, 422)


async def test_a_named_job_without_a_schedule_runs_now(api, database):
    made = await api.post("/v1/jobs", json={"name": "once", "target": A_TARGET})

    assert made.status_code == 202, made.text
    shown = (await api.get(f"/v1/jobs/{made.json()['job_id']}")).json()
    assert (shown["name"], shown["schedule"]["trigger"]["type"]) == ("once", "at")


async def test_by_its_name_a_job_is_not_run_now_because_asking_twice_would_run_it_twice(api):
    answer = await api.put("/v1/jobs/by-name/once", json={"target": A_TARGET})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")
    assert "POST /v1/jobs" in answer.json()["detail"]


async def test_fired_one_shot_is_not_created_again_by_its_name(api, database, clock):
    at = (await database.read_clock() + timedelta(minutes=1)).isoformat()
    body = {"target": A_TARGET, "schedule": {"trigger": {"type": "at", "at": at}}}
    first = await api.put("/v1/jobs/by-name/once", json=body)
    await database.execute("update duly.jobs set state = 'completed'")
    await database.execute("delete from duly.timers")

    again = await api.put("/v1/jobs/by-name/once", json=body)

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["job_id"] == again.json()["job_id"]


@pytest.mark.parametrize(("name", "path"), [("a//b", "a%2F%2Fb"), ("/lead", "%2Flead"), ("trail/", "trail%2F")])
async def test_a_name_in_a_path_is_read_as_it_was_sent(api, name, path):
    made = await api.put(f"/v1/jobs/by-name/{path}", json={"target": A_TARGET, "schedule": EVERY_HOUR})

    assert (made.status_code, made.json()["name"]) == (201, name)
    assert (await api.get(f"/v1/jobs/by-name/{path}")).json()["job_id"] == made.json()["job_id"]


async def test_a_source_of_events_is_a_name(api):
    answer = await api.post("/v1/jobs", json={"target": A_TARGET, "on_event": {"type": "t", "source": "\0"}})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")


OF_NO_CALENDAR = {"trigger": {"type": "cron", "expr": "0 8 * * *"}, "calendars": [{"name": "a\0b"}]}


async def test_schedule_with_an_invalid_calendar_name_is_refused(api):
    job, asked = await api.a_job(), {"target": A_TARGET, "schedule": OF_NO_CALENDAR}
    change = {"schedule": {"calendars": OF_NO_CALENDAR["calendars"]}}
    answers = [
        await api.post("/v1/jobs", json=asked),
        await api.put("/v1/jobs/by-name/new", json=asked),
        await api.patch(f"/v1/jobs/{job['job_id']}", change, headers={"If-Match": "*"}),
    ]
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_schedule"), answer.text
        assert answer.json()["errors"][0]["pointer"].startswith("/schedule/calendars"), answer.text

    previewed = await api.post("/v1/triggers/preview", json={"schedule": OF_NO_CALENDAR})
    assert (previewed.status_code, previewed.json()["valid"]) == (200, False), previewed.text


async def test_a_line_with_a_key_that_is_none_does_not_hold_up_the_others(api):
    lines = b'{"target": {"type": "function", "handler": "a:b"}, "idempotency_key": "a\\u0000"}\n'
    lines += b'{"target": {"type": "function", "handler": "a:b"}}\n'

    answer = await api.post("/v1/jobs:batch", content=lines, headers={"Content-Type": "application/x-ndjson"})

    assert answer.status_code == 200
    assert (answer.headers["duly-accepted"], answer.headers["duly-refused"]) == ("1", "1")


async def test_tenant_pauses_do_not_use_up_the_room_for_a_global_pause(front, api):
    stranger = await front.stranger()
    answers = [await stranger.post("/v1/pause", json={"queue": f"q{number}"}) for number in range(101)]

    assert [answer.status_code for answer in answers] == [200] * 100 + [409]
    assert (await api.post("/v1/pause", json={"all": True})).status_code == 200


async def test_a_tenant_that_is_not_there_cannot_be_paused(api):
    assert (await api.post("/v1/pause", json={"tenant": 99})).status_code == 404


async def test_timeout_is_returned_with_its_full_precision(api):
    job = await api.a_job(timeout="PT12.345678S")

    assert (await api.get(f"/v1/jobs/{job['job_id']}")).json()["timeout"] == "PT12.345678S"
