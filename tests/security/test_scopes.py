"""Who may ask for what: every operation with every single scope, without a key, and with one that has ended.

Each request carries a query that nobody knows, which is refused only after the key was looked at. So what is let through answers
400 and does nothing, and what is not answers 401 or 403.
"""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest

from duly.api.operations import OPEN, Operation
from duly.api.routes import OPERATIONS
from tests.api.contract.described import described
from tests.api.contract.yard import request_for, unknown
from tests.api.front import Caller

# Said once more, so that nobody changes it in passing.
OPENS = {
    "jobs:read": {"jobs:read"},
    "jobs:write": {"jobs:read", "jobs:write"},
    "jobs:trigger": {"jobs:trigger"},
    "worker": {"worker"},
    "admin": {"jobs:read", "jobs:write", "jobs:trigger", "worker", "admin"},
}


KEYED = [operation for operation in OPERATIONS if not operation.is_open]


async def tried(caller: Caller, operation: Operation) -> tuple[int, str]:
    """Say how an operation answers a caller; what is let through does nothing."""
    answer: httpx.Response = await request_for(operation, **unknown(operation)).with_query("nonsense=1").by(caller)
    return answer.status_code, answer.json()["code"]


@pytest.mark.parametrize("scope", OPENS)
async def test_scope_opens_only_the_operations_that_require_it(front, scope):
    caller = await front.caller(scope)
    found = {operation.name: await tried(caller, operation) for operation in OPERATIONS}

    expected = {
        operation.name: (400, "invalid_query")
        if described(operation)["x-scope"] in {OPEN, *OPENS[scope]}
        else (403, "forbidden")
        for operation in OPERATIONS
    }
    assert found == expected


async def test_every_scope_opens_something_and_none_but_admin_opens_all(front):
    scopes = {described(operation)["x-scope"] for operation in OPERATIONS}

    assert scopes == {OPEN, *OPENS}


async def test_open_operations_are_the_three_callback_operations(front):
    assert {operation.name for operation in OPERATIONS if operation.is_open} == {
        "settle_callback",
        "extend_callback",
        "report_callback",
    }


async def test_an_admin_of_another_tenant_is_no_operator(front):
    stranger = await front.stranger()
    refused = {operation.name for operation in OPERATIONS if (await tried(stranger, operation))[0] == 403}

    assert refused == {operation.name for operation in OPERATIONS if operation.is_operators}
    assert refused


async def test_without_a_key_nothing_opens(front):
    nobody = front.nobody()

    assert {await tried(nobody, operation) for operation in KEYED} == {(401, "unauthorized")}


async def test_an_expired_key_opens_nothing(front, database, clock):
    brief = await front.caller("admin", expires_at=await database.read_clock() + timedelta(minutes=1))
    await clock.advance(timedelta(minutes=1))

    assert {await tried(brief, operation) for operation in KEYED} == {(401, "unauthorized")}


async def test_a_revoked_key_opens_nothing(front, api, clock):
    revoked = await front.caller("admin")
    answer = await api.delete(f"/v1/keys/{revoked.key_id}")
    await clock.advance(timedelta(seconds=4))

    assert answer.status_code == 204
    assert {await tried(revoked, operation) for operation in KEYED} == {(401, "unauthorized")}


async def test_a_key_of_a_suspended_tenant_opens_nothing(front, api, clock):
    stranger = await front.stranger()
    await api.ask("PATCH", f"/v1/tenants/{stranger.tenant}", json={"state": "suspended"})
    await clock.advance(timedelta(seconds=4))

    assert {await tried(stranger, operation) for operation in KEYED} == {(401, "unauthorized")}
