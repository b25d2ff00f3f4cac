"""Audit entries: every operation that may change something writes one row when it does, or says why it does not.

Made from the table of operations, so that an operation that is added is called here, and must leave its row.
"""

from __future__ import annotations

import msgspec
import pytest

from duly.api.operations import SAFE, check_declared
from duly.api.routes import OPERATIONS
from duly.domain.runs.outcome import Failed
from duly.domain.tenancy.audit import Action
from tests.api.contract.described import BY_NAME, described
from tests.api.contract.yard import Asked, Yard
from tests.builders import a_ready_run

CHANGING = sorted(operation.name for operation in OPERATIONS if operation.method not in SAFE)
ROWS = "select * from duly.audit order by at"


async def request_that_changes(yard: Yard, name: str) -> Asked:
    """Give a request that changes something, where the plain one would not."""
    operation = BY_NAME[name]
    asked = await yard.request(operation)
    if '"dry_run"' in (asked.content or b"").decode():
        await something_for(yard, name)
        return asked.with_fields(dry_run=False)
    match name:
        case "resume_job" | "resume_queue" | "resume_workflow":
            await yard.api.post(asked.path.replace("/resume", "/pause"))
        case "resume_worker" | "resume_host":
            await yard.api.post(asked.path.replace("/resume", "/drain"))
        case "resume":
            await yard.api.post("/v1/pause", json={"queue": "pausable"})
        case "limit_destination":
            return asked.with_fields(slots=7)
        case "change_tenant":
            return asked.with_fields(state="suspended")
        case "change_job":
            return asked.with_fields(priority=3)
        case "change_queue":
            return asked.with_fields(age_limit="PT90S")
        case "close_destination":
            await yard.database.execute("update duly.destinations set state = 'open'")
    return asked


async def something_for(yard: Yard, name: str) -> None:
    """Make one thing that a change of many fits."""
    if name == "cancel_runs":
        await a_ready_run(yard.database)
    elif name.endswith("_jobs"):
        job = await yard.api.a_job(name="one of many")
        if name == "resume_jobs":
            await yard.api.post(f"/v1/jobs/{job['job_id']}/pause")
    else:
        await yard.ended_run(Failed("broken", retryable=False))


@pytest.fixture
async def yard(database, api, archive_files):
    return Yard(database, api, archive_files)


async def rows(database):
    return await database.fetch(ROWS)


@pytest.mark.parametrize("name", CHANGING)
async def test_change_writes_one_audit_row_across_idempotent_replays(name, yard, database, api):
    asked = await request_that_changes(yard, name)
    before = {row["audit_id"] for row in await rows(database)}

    asked = asked.with_headers(X_Request_ID="the-request")
    if BY_NAME[name].is_keyed:
        asked = asked.with_headers(Idempotency_Key="once")
    answer = await asked.by(api)
    assert answer.status_code < 300, answer.text
    if BY_NAME[name].is_keyed:  # Asked again, it is answered the same, and not noted again.
        assert (await asked.by(api)).headers["idempotency-replayed"] == "true"

    written = [row for row in await rows(database) if row["audit_id"] not in before]
    if BY_NAME[name].unaudited:
        assert written == []
        return
    [row] = written
    assert row["action"] in BY_NAME[name].audits
    assert (row["actor_kind"], row["actor"], row["actor_name"]) == ("key", api.key_id, "test")
    assert row["request_id"] == "the-request"
    assert row["tenant"] == 1


def test_a_reason_for_no_entry_is_a_sentence():
    reasons = [operation.unaudited for operation in OPERATIONS if operation.unaudited]

    assert reasons
    assert all(reason.endswith(".") for reason in reasons)


@pytest.mark.parametrize(("audits", "unaudited"), [((), ""), ((Action.JOB_PAUSED,), "It changes nothing.")])
def test_operation_declares_exactly_one_of_audits_and_unaudited(audits, unaudited):
    forgetful = msgspec.structs.replace(BY_NAME["pause_job"], audits=audits, unaudited=unaudited)

    with pytest.raises(ValueError, match=r"POST .*pause_job.* changes something: give it audits or unaudited"):
        check_declared(forgetful)


def test_an_operation_without_a_scope_cannot_be_added():
    with pytest.raises(ValueError, match="pause_job names no scope"):
        check_declared(msgspec.structs.replace(BY_NAME["pause_job"], scope=""))


def test_a_read_is_not_audited():
    with pytest.raises(ValueError, match="read_job only reads"):
        check_declared(msgspec.structs.replace(BY_NAME["read_job"], audits=(Action.JOB_PAUSED,)))


def test_openapi_description_lists_the_audited_actions():
    told = {name: described(BY_NAME[name]).get("x-audit") for name in BY_NAME}

    assert told == {name: [*map(str, BY_NAME[name].audits)] or None for name in BY_NAME}
