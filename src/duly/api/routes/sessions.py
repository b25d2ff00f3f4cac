"""Browser sessions: log in and out with a key for the dashboard, list sessions and revoke them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from duly import __version__
from duly.api import paging
from duly.api.auth.browser import Logins, csrf_of
from duly.api.operations import OPEN, Call, Operation, Routes
from duly.api.response import Response
from duly.domain.tenancy.api_key import Identity, Scope, Secret
from duly.domain.tenancy.audit import Action
from duly.moves.admin import log_in
from duly.store.tenancy import browser_sessions
from duly.wire.schema.shapes import Nothing
from duly.wire.sessions import Caller, LogIn, Session, SessionList, SessionQuery

routes = Routes("sessions", scope="jobs:read", in_session=False)


@routes.add("GET /v1/sessions", responses={200: SessionList})
async def list_sessions(call: Call[SessionQuery, None]) -> Response:
    """List the logged-in browsers: of the tenant for an admin, of the calling key for all others."""
    requested = call.query
    tenant = call.tenant_or(
        requested.tenant, "Sessions of another tenant are for the operator: use an admin key of the first tenant."
    )
    of = f"sessions {tenant}"
    after = paging.position(requested.page_token, of, tuple[datetime, UUID])
    found = await browser_sessions.page(call.database, tenant, _own_key(call), after, requested.page_size)
    last = (found[-1].opened_at, found[-1].session_id) if len(found) == requested.page_size else None
    items = [Session.of(one, is_current=one.session_id == call.identity.session_id) for one in found]
    return paging.page(SessionList, items, last, of)


@routes.add("DELETE /v1/sessions/{session_id}", responses={204: None}, audits=(Action.SESSION_CLOSED,))
async def revoke_session(call: Call[Nothing, None]) -> Response:
    """End a session. Within five seconds it grants nothing any more; its key stays valid."""
    tenant = None if call.identity.is_operator else call.tenant
    await log_in.revoke_session(call.database, call.id("session_id"), tenant=tenant, key_id=_own_key(call))
    return Response(204)


def _own_key(call: Call[Any, Any]) -> str | None:
    """Return the key whose sessions alone may be seen; None for an admin."""
    return None if Scope.ADMIN in call.identity.scopes else call.identity.key.key_id


_PATH = "/v1/session"
_BODY_BYTES_MAX = 1_000


def operations(logins: Logins) -> list[Operation]:
    """Return the operations over these log-ins."""
    routes = Routes("session", reads="jobs:read", in_session=False)

    @routes.add(
        f"POST {_PATH}",
        scope=OPEN,
        responses={200: Caller},
        body_bytes_max=_BODY_BYTES_MAX,
        takes_key=False,
        refuses=("rate_limited",),
        audits=(Action.SESSION_OPENED,),
    )
    async def open_session(call: Call[Nothing, LogIn]) -> Response:
        """Log in with a key."""
        logins.check_origin(call.headers, is_required=False)
        before, user_agent = logins.token_in(call.headers), call.headers.get("user-agent", "")
        identity, token = await logins.open(call.body.key.strip(), call.request_id, call.address, user_agent, before)
        return _reported(logins, identity, token)

    @routes.add(f"GET {_PATH}", responses={200: Caller})
    async def read_session(call: Call[Nothing, None]) -> Response:
        """Read the caller, and extend the browser's session."""
        is_session = call.identity.session_id is not None
        return _reported(logins, call.identity, logins.token_in(call.headers) if is_session else None)

    @routes.add(f"DELETE {_PATH}", scope="jobs:read", responses={204: None}, audits=(Action.SESSION_CLOSED,))
    async def close_session(call: Call[Nothing, None]) -> Response:
        """Log out."""
        token = logins.token_in(call.headers)
        if token is not None:
            await logins.close(token, call.database.actor)
        return Response(204, headers={"Set-Cookie": logins.cookie_for(None)})

    return routes.operations


def _reported(logins: Logins, identity: Identity, token: Secret | None) -> Response:
    caller = Caller(
        tenant=identity.tenant,
        tenant_name=identity.key.tenant_name,
        key_id=identity.key.key_id,
        key_name=identity.key.name,
        scopes=sorted(identity.scopes),
        is_operator=identity.is_operator,
        csrf=None if token is None else csrf_of(token),
        version=__version__,
    )
    return Response(200, caller, {} if token is None else {"Set-Cookie": logins.cookie_for(token)})
