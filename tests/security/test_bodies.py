"""Whatever is sent, the answer says what is wrong with it: nothing is a failure of ours."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.front import A_TARGET
from tests.api.test_jobs import EVERYTHING, SCHEDULES, read

RAW = "\x01raw\x01"
# Written into the body as they stand: JSON that Python would not write.
LITERALS = ["1e400", "-1e400", "9" * 400, "-" + "9" * 400, '"\\ud800"', '"\\u0000"', "NaN", '"\ufffe\\u007f"']
VALUES: list[Any] = [
    None,
    True,
    -1,
    2**31,
    2**63,
    2**64,
    1.5,
    "",
    "\n",
    "x" * 3000,
    [],
    [[]],
    {},
    {"type": "x"},
    "P",
    "-PT5M",
]
VALUES += [
    "P99999999999999D",
    "PT1e5S",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "2026-02-30",
    "24:00",
]


def mutations(body: Any) -> Iterator[bytes]:
    """Give the body with each of its values replaced by each odd one."""
    for place in slots(body):
        for value in VALUES:
            yield json.dumps(replaced(body, place, value)).encode()
        text = json.dumps(replaced(body, place, RAW))
        for literal in LITERALS:
            yield text.replace(json.dumps(RAW), literal).encode()


def slots(value: Any, before: tuple = ()) -> Iterator[tuple]:
    if before:
        yield before
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from slots(inner, (*before, key))


def replaced(value: Any, place: tuple, by: Any) -> Any:
    if not place:
        return by
    copy = value.copy()
    copy[place[0]] = replaced(value[place[0]], place[1:], by)
    return copy


async def sent(api, method: str, path: str, content: bytes, media_type: str = "application/json", **headers):
    answer = await api.ask(method, path, content=content, headers={"Content-Type": media_type, **headers})
    assert answer.status_code < 500, (content, answer.text)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"]
    return answer


async def test_nothing_in_a_job_makes_it_fail(api):
    body = {key: value for key, value in EVERYTHING.items() if key not in ("name", "schedule")}
    answers = [await sent(api, "POST", "/v1/jobs", content) for content in mutations(body)]

    codes = {answer.json().get("code") for answer in answers}
    assert codes >= {None, "malformed_json", "invalid_body", "invalid_option", "invalid_payload"}, codes
    for answer in answers:
        if answer.status_code == 202:
            await read(api, answer.json())


async def test_nothing_in_a_key_makes_it_fail(api):
    for content in mutations({"target": A_TARGET, "idempotency_key": "k"}):
        await sent(api, "POST", "/v1/jobs", content)


@pytest.mark.parametrize("kind", SCHEDULES)
async def test_nothing_in_a_schedule_makes_it_fail(api, kind):
    for content in mutations({"schedule": SCHEDULES[kind], "n": 2}):
        await sent(api, "POST", "/v1/triggers/preview", content)


async def test_nothing_in_a_patch_makes_it_fail(api):
    job = await api.a_job(name="patched")
    patch = {"name": "x", "queue": "q", "payload": {"a": 1}, "schedule": {"trigger": {"every": "PT1H"}}, "tags": ["t"]}
    for content in mutations(patch):
        path = f"/v1/jobs/{job['job_id']}"
        await sent(api, "PATCH", path, content, "application/merge-patch+json", **{"If-Match": "*"})
    await read(api, job)


async def test_nothing_in_a_header_makes_it_fail(api):
    odd = [b"\xff", b"\xc3\xa9", b"\t", b'a,b;c="', b"x" * 5000, b"*", b"wait=" + b"9" * 500, b'W/"1"', b"\x7f"]
    job = await api.a_job()
    for name in (
        b"X-Request-ID",
        b"traceparent",
        b"Prefer",
        b"If-Match",
        b"Idempotency-Key",
        b"Accept",
        b"Content-Type",
    ):
        for value in odd:
            headers = [(b"Authorization", f"Bearer {api.key}".encode()), (name, value)]
            if name != b"Content-Type":
                headers.append((b"Content-Type", b"application/json"))
            for method, path, body in (
                ("POST", "/v1/jobs", {"target": A_TARGET, "schedule": SCHEDULES["at"]}),
                ("PUT", f"/v1/jobs/{job['job_id']}", {"target": A_TARGET, "schedule": SCHEDULES["at"]}),
            ):
                answer = await api._client.request(method, path, content=json.dumps(body), headers=headers)
                assert answer.status_code < 500, (name, value, answer.text)


async def test_nothing_that_is_no_json_makes_it_fail(api):
    for content in (b"", b"{", b"\xff", b"null", b"[]", b'"x"', b"7", b"[" * 5000, b'{"a":' * 5000, b"\xef\xbb\xbf{}"):
        for method, path in (
            ("POST", "/v1/jobs"),
            ("POST", "/v1/keys"),
            ("PUT", "/v1/calendars/x"),
            ("POST", "/v1/jobs:apply"),
        ):
            answer = await sent(api, method, path, content)
            assert answer.status_code in (400, 422) or (content, path) == (b"", "/v1/calendars/x"), (
                content,
                answer.text,
            )
