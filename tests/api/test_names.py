"""A blank name is refused with its field, whatever it is the name of, through every door."""

from typing import Any

import msgspec
import pytest

from duly import App, InvalidOption
from duly.domain.jobs.manifest import read_manifest
from duly.domain.problems import InvalidManifest
from duly.moves.admin.tenants import create_tenant
from duly.moves.schedules.calendars import put_calendar
from duly.store.tenancy.tenants import Limits
from tests.api.front import A_TARGET, EVERY_HOUR
from tests.api.test_as_code import apply

BLANKS = ["", " ", "   "]
# The nodes of a workflow, and the fields in whose place a name stands.
NODES = {"nodes": {"a": {"target": A_TARGET}}}
BODIES: list[tuple[str, str, dict[str, Any], str]] = [
    ("POST", "/v1/jobs", {"target": A_TARGET, "name": "?", "schedule": EVERY_HOUR}, "/name"),
    ("POST", "/v1/jobs", {"target": A_TARGET, "queue": "?"}, "/queue"),
    ("POST", "/v1/jobs", {"target": {"type": "function", "handler": "?"}}, "/target/handler"),
    ("POST", "/v1/jobs", {"target": A_TARGET, "concurrency": {"key": "?"}}, "/concurrency/key"),
    ("POST", "/v1/jobs", {"target": A_TARGET, "rate_limit": {"key": "?", "limit": 1}}, "/rate_limit/key"),
    ("POST", "/v1/jobs", {"target": A_TARGET, "tags": ["a", "?"]}, "/tags/1"),
    ("POST", "/v1/jobs", {"target": A_TARGET, "idempotency_key": "?"}, "/idempotency_key"),
    ("POST", "/v1/workflows", {"name": "?", **NODES}, "/name"),
    ("POST", "/v1/keys", {"name": "?", "scopes": ["admin"]}, "/name"),
    ("POST", "/v1/tenants", {"name": "?"}, "/name"),
]


def filled(shape: Any, name: str) -> Any:
    return msgspec.json.decode(msgspec.json.encode(shape).replace(b'"?"', msgspec.json.encode(name)))


@pytest.mark.parametrize("blank", BLANKS)
@pytest.mark.parametrize(("method", "path", "body", "pointer"), BODIES, ids=lambda value: str(value)[:30])
async def test_a_blank_name_in_a_body_is_refused_with_its_pointer(api, method, path, body, pointer, blank):
    answer = await api.ask(method, path, json=filled(body, blank))

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_body"), answer.text
    assert [fault["pointer"] for fault in answer.json()["errors"]] == [pointer]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/jobs/by-name/%20", {"target": A_TARGET, "schedule": EVERY_HOUR}),
        ("PUT", "/v1/calendars/%20", {"dates": ["2026-12-25"]}),
        ("PUT", "/v1/queues/%20", {"age_limit": "PT5S"}),
    ],
)
async def test_a_blank_name_in_a_path_is_refused_with_its_parameter(api, method, path, body):
    answer = await api.ask(method, path, json=body)

    assert answer.status_code == 422, answer.text
    assert "it is blank" in answer.json()["detail"]
    [fault] = answer.json()["errors"]
    assert fault["pointer"] in ("name", "calendar", "queue")


async def test_a_line_of_a_batch_with_a_blank_name_is_refused_with_its_pointer(api):
    answer = await api.post(
        "/v1/jobs:batch",
        content=msgspec.json.encode({"target": A_TARGET, "queue": "  "}),
        headers={"Content-Type": "application/x-ndjson"},
    )

    [fault] = answer.json()["error"]["errors"]
    assert (fault["pointer"], fault["message"]) == (
        "/queue",
        "'  ' is blank; write at least one visible character",
    )


@pytest.mark.parametrize("blank", BLANKS)
async def test_a_change_to_a_blank_name_is_refused(api, blank):
    made = await api.a_job(name="named")

    answer = await api.patch(f"/v1/jobs/{made['job_id']}", {"name": blank}, headers={"If-Match": "*"})

    assert answer.status_code == 422
    assert [fault["pointer"] for fault in answer.json()["errors"]] == ["/name"]


@pytest.mark.parametrize(
    "file",
    [
        {"source": "?", "jobs": {}},
        {"source": "shop", "jobs": {"?": {"target": "app:a", "schedule": "every day"}}},
        {"source": "shop", "jobs": {"a": {"target": "app:a", "schedule": "every day", "queue": "?"}}},
        {"source": "shop", "jobs": {"a": {"target": "?", "schedule": "every day"}}},
        {"source": "shop", "calendars": {"?": {"dates": ["2026-12-25"]}}, "jobs": {}},
    ],
)
async def test_blank_name_in_a_manifest_is_refused(api, file):
    with pytest.raises(InvalidManifest, match="blank"):
        read_manifest(filled(file, "  "))
    answer = await apply(api, filled(file, "  "))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_manifest")


@pytest.mark.parametrize("blank", BLANKS)
def test_the_sdk_refuses_a_blank_name_with_its_field(blank):
    app = App("postgresql:///nowhere")

    @app.handler
    def tick() -> None: ...

    for field in ("name", "queue"):
        with pytest.raises(InvalidOption) as caught:
            tick.options(every=60, **{field: blank})
        assert caught.value.field == field
    with pytest.raises(InvalidOption, match="key"):
        tick.options(key=blank)
    with pytest.raises(InvalidOption, match="handler name"):
        app.handler(name=blank)(lambda: None)


async def test_the_moves_refuse_a_blank_tenant_and_a_blank_calendar(database):
    with pytest.raises(InvalidOption, match="tenant ' ' is not a name: it is blank"):
        await create_tenant(database, " ", Limits())
    with pytest.raises(InvalidOption, match="tenant ' acme' begins or ends with a space"):
        await create_tenant(database, " acme", Limits())
    with pytest.raises(InvalidOption, match="calendar ' ' is not a name: it is blank"):
        await put_calendar(database, {"name": " ", "dates": ["2026-12-25"]})


@pytest.mark.parametrize("asked", ["' '", "'x', queue => '  '", "'x', key => ' '"])
async def test_plain_sql_refuses_a_blank_name(database, asked):
    with pytest.raises(InvalidOption):
        await database.fetchval(f"select duly.submit({asked})")


@pytest.mark.parametrize("dots", [".", ".."])
async def test_name_that_is_a_dot_segment_is_refused(api, dots):
    answer = await api.post("/v1/jobs", json={"target": A_TARGET, "queue": dots})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")


async def test_a_tenant_is_not_named_like_a_number(api):
    answer = await api.post("/v1/tenants", json={"name": "7"})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")
