"""Limits: one less is taken, the limit itself is taken, one more is refused with its code."""

from __future__ import annotations

from typing import Any

import pytest

from duly.api.request import HEADER_BYTES_MAX
from duly.api.response import NDJSON
from duly.api.routes import OPERATIONS
from duly.domain.fields import TAGS_MAX
from duly.domain.runs.payload import DEPTH_MAX, PAYLOAD_BYTES_MAX
from duly.wire.jobs.batches import LINES_MAX
from duly.wire.pages import PAGE_SIZE_MAX
from duly.wire.schema.reading import BODY_DEPTH_MAX
from tests.api.contract.described import BY_NAME
from tests.api.contract.yard import request_for, unknown
from tests.api.front import A_TARGET

TAKEN = None
WITH_BODY = sorted(operation.name for operation in OPERATIONS if operation.body is not None)
WITH_PAGES = sorted(
    operation.name for operation in OPERATIONS if "page_size" in getattr(operation.query, "__struct_fields__", ())
)
WITH_FILTER = sorted(
    operation.name for operation in OPERATIONS if "filter" in getattr(operation.query, "__struct_fields__", ())
)


async def created(api, **fields: Any) -> str | None:
    """Create a job with these fields, and say with which code it was refused."""
    answer = await api.post("/v1/jobs", json={"target": A_TARGET, **fields})
    return None if answer.status_code == 202 else answer.json()["code"]


@pytest.mark.parametrize("name", WITH_BODY)
async def test_a_body_is_taken_up_to_the_bytes_of_its_operation(api, name):
    operation = BY_NAME[name]
    asked = request_for(operation, **unknown(operation))
    text = asked.content or b""
    refused = []
    for length in (operation.body_bytes_max - 1, operation.body_bytes_max, operation.body_bytes_max + 1):
        # Of a batch only the spaces of one line: its lines have a limit of their own.
        answer = await asked.with_body(text.rstrip() + b" " * (length - len(text.rstrip()))).by(api)
        refused.append(answer.json()["code"] == "body_too_large" if answer.is_error else False)

    assert refused == [False, False, True]


@pytest.mark.parametrize(
    ("depth", "code"), [(DEPTH_MAX - 1, TAKEN), (DEPTH_MAX, TAKEN), (DEPTH_MAX + 1, "invalid_payload")]
)
async def test_a_payload_is_nested_up_to_a_depth(api, depth, code):
    assert await created(api, payload=nested(depth)) == code


@pytest.mark.parametrize(
    ("depth", "code"),
    [
        (BODY_DEPTH_MAX - 1, "invalid_payload"),
        (BODY_DEPTH_MAX, "invalid_payload"),
        (BODY_DEPTH_MAX + 1, "invalid_body"),
    ],
)
async def test_a_body_is_read_up_to_a_depth(api, depth, code):
    assert await created(api, payload=nested(depth - 1)) == code


def nested(levels: int) -> dict[str, Any]:
    """Give an object of so many levels."""
    value: dict[str, Any] = {"a": 1}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("size", "code"),
    [(PAYLOAD_BYTES_MAX - 1, TAKEN), (PAYLOAD_BYTES_MAX, TAKEN), (PAYLOAD_BYTES_MAX + 1, "invalid_payload")],
)
async def test_a_payload_has_at_most_256_kib(api, size, code):
    around = len('{"word":""}')

    assert await created(api, payload={"word": "x" * (size - around)}) == code


@pytest.mark.parametrize(
    ("length", "code"), [(0, "invalid_body"), (1, TAKEN), (199, TAKEN), (200, TAKEN), (201, "invalid_body")]
)
@pytest.mark.parametrize("field", ["name", "queue", "tag", "concurrency", "handler"])
async def test_a_name_has_1_to_200_characters(api, field, length, code):
    word = "é" * length  # Characters, and not bytes.
    fields = {
        "name": {"name": word},
        "queue": {"queue": word},
        "tag": {"tags": [word]},
        "concurrency": {"concurrency": {"key": word, "limit": 1}},
        "handler": {"target": {"type": "function", "handler": word}},
    }

    assert await created(api, **fields[field]) == code


@pytest.mark.parametrize(("number", "code"), [(TAGS_MAX - 1, TAKEN), (TAGS_MAX, TAKEN), (TAGS_MAX + 1, "invalid_body")])
async def test_a_job_has_at_most_32_tags(api, number, code):
    assert await created(api, tags=[f"tag-{index}" for index in range(number)]) == code


@pytest.mark.parametrize(
    ("length", "code"), [(0, "invalid_header"), (199, TAKEN), (200, TAKEN), (201, "invalid_header")]
)
async def test_an_idempotency_key_has_1_to_200_characters(api, length, code):
    answer = await api.post("/v1/jobs", json={"target": A_TARGET}, headers={"Idempotency-Key": "k" * length})

    assert (None if answer.is_success else answer.json()["code"]) == code


@pytest.mark.parametrize(("more", "status"), [(-1, 200), (0, 200), (1, 431)])
async def test_headers_have_at_most_8_kib(front, api, more, status):
    sent: dict[str, str] = {
        **front.client.headers,
        "host": "duly",
        "authorization": f"Bearer {api.key}",
        "x-padding": "",
    }
    size = sum(len(name) + len(value) + 4 for name, value in sent.items())

    answer = await api.get("/v1/calendars", headers={"X-Padding": "x" * (HEADER_BYTES_MAX - size + more)})

    assert answer.status_code == status, answer.text


@pytest.mark.parametrize("name", WITH_PAGES)
async def test_a_page_has_1_to_200_rows(api, name):
    operation = BY_NAME[name]
    asked = request_for(operation, **unknown(operation))
    found = {}
    for size in (0, 1, PAGE_SIZE_MAX - 1, PAGE_SIZE_MAX, PAGE_SIZE_MAX + 1):
        answer = await asked.with_query(f"{asked.query}&page_size={size}".lstrip("&")).by(api)
        # A list of what belongs to something is not there without it.
        is_taken = answer.is_success or answer.json()["code"] == "not_found"
        found[size] = None if is_taken else answer.json()["code"]

    assert found == {0: "invalid_query", 1: None, 199: None, 200: None, 201: "invalid_query"}


@pytest.mark.parametrize("name", WITH_FILTER)
async def test_a_filter_has_at_most_2000_characters(api, name):
    asked = request_for(BY_NAME[name])
    found = []
    for length in (1_999, 2_000, 2_001):
        field = "tag" if name == "list_workflows" else "queue"
        text = f'{field}:mail AND {field}:"' + "x" * 100 + '"'
        answer = await asked.with_query("filter=" + text + "%20" * (length - len(text))).by(api)
        found.append(None if answer.is_success else answer.json()["code"])

    assert found == [None, None, "invalid_query"]


@pytest.mark.parametrize(("more", "status"), [(-1, 200), (0, 200), (1, 413)])
async def test_a_batch_has_at_most_50000_lines(api, more, status):
    lines = b"{}\n" * (LINES_MAX + more)

    answer = await api.post("/v1/jobs:batch", content=lines, headers={"Content-Type": NDJSON})

    assert answer.status_code == status
    assert answer.headers.get("duly-refused") == (str(LINES_MAX + more) if status == 200 else None)


async def test_empty_lines_count_as_lines_before_they_are_split(api):
    answer = await api.post("/v1/jobs:batch", content=b"\n" * (LINES_MAX + 1), headers={"Content-Type": NDJSON})

    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
