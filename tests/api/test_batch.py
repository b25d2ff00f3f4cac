"""Many jobs in one request: each line is answered by itself."""

import json

import pytest

from tests.api.front import A_TARGET, EVERY_HOUR
from tests.builders import counts
from tests.hints import a_submit_that_stays_open

ONE = {"target": A_TARGET}


def lines(*bodies) -> bytes:
    return b"\n".join(body if isinstance(body, bytes) else json.dumps(body).encode() for body in bodies)


async def send(api, content, **headers):
    return await api.post(
        "/v1/jobs:batch", content=content, headers={"Content-Type": "application/x-ndjson", **headers}
    )


def told(answer) -> list[dict]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_lines_that_are_refused_do_not_hold_up_the_others(api, database, front):
    body = lines(
        {**ONE, "payload": {"n": 1}, "queue": "mail"},
        b"",
        {**ONE, "prioritty": 1},
        {**ONE, "schedule": EVERY_HOUR, "name": "report"},
        b"   \r",
        b"{nonsense",
        {**ONE, "idempotency_key": "mine"},
        {**ONE, "schedule": {"trigger": {"type": "cron", "expr": "61 * * * *"}}},
        b"",
    )
    async with a_submit_that_stays_open(database.url):  # So the hints are sent after the commit.
        answer = await send(api, body)

    found = told(answer)
    assert [one["line"] for one in found] == [1, 3, 4, 6, 7, 8]
    assert [one.get("error", {}).get("code") for one in found] == [
        None,
        "invalid_body",
        None,
        "malformed_json",
        None,
        "invalid_schedule",
    ]
    assert found[1]["error"]["errors"][0]["pointer"] == "/prioritty"
    assert found[5]["error"]["errors"][0]["pointer"] == "/schedule/trigger/expr"
    assert (answer.headers["duly-accepted"], answer.headers["duly-refused"]) == ("3", "3")
    assert await counts(database) == {"ready": 2, "timers": 1}
    assert sorted(front.woken) == ["@due", "default", "mail"]
    assert (await api.get(f"/v1/runs/{found[0]['job_id']}")).json()["payload"] == {"n": 1}
    assert (await api.get(f"/v1/jobs/{found[2]['job_id']}")).json()["name"] == "report"


async def test_a_lines_own_key_makes_it_once(api, database):
    body = lines({**ONE, "idempotency_key": "mine"}, {**ONE, "schedule": EVERY_HOUR, "idempotency_key": "yours"})
    first, again = told(await send(api, body)), told(await send(api, body))

    assert [one["job_id"] for one in first] == [one["job_id"] for one in again]
    assert [one.get("replayed") for one in again] == [True, True]
    [other] = told(await send(api, lines({**ONE, "priority": 1, "idempotency_key": "mine"})))
    assert other["error"]["code"] == "key_reused"
    assert await counts(database) == {"ready": 1, "timers": 1}


async def test_batch_refuses_the_second_job_of_the_same_name(api):
    named = {**ONE, "schedule": EVERY_HOUR, "name": "report"}
    first, second = told(await send(api, lines(named, {**named, "priority": 1})))

    assert first["job_id"]
    assert second["error"]["code"] == "name_taken"


async def test_a_batch_under_a_key_is_answered_again(api, database):
    body = lines(ONE, {**ONE, "schedule": EVERY_HOUR}, b"{")
    first = await send(api, body, **{"Idempotency-Key": "k"})
    again = await send(api, body, **{"Idempotency-Key": "k"})

    assert first.content == again.content
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["duly-accepted"] == "2"
    assert (await send(api, lines(ONE), **{"Idempotency-Key": "k"})).status_code == 422
    assert await counts(database) == {"ready": 1, "timers": 1}


async def test_the_request_stays_with_each_run(api):
    [one] = told(await send(api, lines(ONE), **{"X-Request-ID": "mine-7"}))

    assert (await api.get(f"/v1/runs/{one['job_id']}")).json()["request_id"] == "mine-7"


@pytest.mark.timeout(120)
async def test_fifty_thousand_lines_are_taken_and_one_more_is_not(api, database):
    text = json.dumps(ONE).encode()
    assert (await send(api, b"\n".join([text] * 50_001))).status_code == 413
    assert await counts(database) == {}

    answer = await send(api, b"\n".join([text] * 50_000))

    assert answer.headers["duly-accepted"] == "50000"
    assert await counts(database) == {"ready": 50_000}


async def test_nothing_makes_it_fail(api):
    text = "\0 \ud800 x"
    odd = [
        b"\xff\xfe",
        b"null",
        b"[]",
        b'"x"',
        b"1e400",
        json.dumps({"target": {"type": "function", "handler": text}}).encode(),
        json.dumps({**ONE, "payload": {text: 1}}).encode(),
        json.dumps({**ONE, "payload": {"x": text}}).encode(),
        json.dumps({**ONE, "name": text}).encode(),
        json.dumps({**ONE, "idempotency_key": text}).encode(),
        json.dumps({**ONE, "tags": [text]}).encode(),
        b'{"target": {"type": "function", "handler": "a"}, "priority": ' + b"9" * 400 + b"}",
        b'{"target": {"type": "function", "handler": "a"}, "payload": {"x": 1e400}}',
        b'{"target": {"type": "function", "handler": "a"}, "payload": {"x": ' + b"[" * 200 + b"]" * 200 + b"}}",
        b'{"target": {"type": "function", "handler": "a"}, "timeout": -1}',
        b'{"target": {"type": "function", "handler": "a"}, "timeout": 1e300}',
    ]
    found = told(await send(api, lines(*odd, ONE)))

    assert [one["line"] for one in found if "error" not in one] == [len(odd) + 1]
    many = b'{"target": {"type": "function", "handler": "a"}, "payload": {"x": ' + b"9" * 400 + b"}}"
    [kept] = told(await send(api, many))
    assert (await api.get(f"/v1/runs/{kept['job_id']}")).json()["payload"]["x"] == int("9" * 400)
    assert (await send(api, b"")).status_code == 200
    assert (await send(api, b"\n\n")).text == ""


async def test_a_line_that_only_the_store_refuses_does_not_hold_up_the_others(api, database):
    past = {**ONE, "schedule": {"trigger": {"type": "at", "at": "2020-01-01T00:00:00Z"}}}

    found = told(await send(api, lines(ONE, past, ONE, ONE, past)))

    assert [one.get("error", {}).get("code") for one in found] == [
        None,
        "invalid_schedule",
        None,
        None,
        "invalid_schedule",
    ]
    assert await counts(database) == {"ready": 3}
