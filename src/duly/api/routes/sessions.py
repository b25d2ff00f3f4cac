"""Sessions of the dashboard: list them, end one. An admin sees those of a tenant, any other key its own."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.api import paging
from duly.api.operations import Answer, Call, Routes
from duly.api.refusals import Refusal
from duly.domain.tenancy.api_key import Scope
from duly.moves.admin import log_in
from duly.store.tenancy import browser_sessions
from duly.wire.schema.shapes import Nothing
from duly.wire.sessions import Session, SessionList, SessionQuery

routes = Routes("sessions")


@routes.add("GET", "/v1/sessions", scope="jobs:read", query=SessionQuery, answers={200: SessionList}, in_session=False)
async def list_sessions(call: Call[SessionQuery, None]) -> Answer:
    """List the browsers that have logged in: of the tenant for an admin, of the key that asks for all others."""
    asked = call.query
    tenant = call.tenant if asked.tenant is None else asked.tenant
    if tenant != call.tenant and not call.identity.is_operator:
        raise Refusal("forbidden", "Sessions of another tenant are for the operator: an admin of the first tenant.")
    of = f"sessions {tenant}"
    after = paging.position(asked.page_token, of, tuple[datetime, UUID])
    found = await browser_sessions.page(call.database, tenant, _own_key(call), after, asked.page_size)
    last = (found[-1].opened_at, found[-1].session_id) if len(found) == asked.page_size else None
    items = [
        Session(**msgspec.structs.asdict(one), is_current=one.session_id == call.identity.session_id) for one in found
    ]
    return Answer(200, SessionList(items=items, next_page_token=paging.next_token(last, of)))


@routes.add("DELETE", "/v1/sessions/{session_id}", scope="jobs:read", answers={204: None}, in_session=False)
async def revoke_session(call: Call[Nothing, None]) -> Answer:
    """End a session. Within five seconds it opens nothing any more; its key stands."""
    tenant = None if call.identity.is_operator else call.tenant
    await log_in.revoke_session(call.database, call.id("session_id"), tenant=tenant, key_id=_own_key(call))
    return Answer(204)


def _own_key(call: Call[Any, Any]) -> str | None:
    """Return the key whose sessions alone may be seen; None for an admin."""
    return None if Scope.ADMIN in call.identity.scopes else call.identity.key.key_id
