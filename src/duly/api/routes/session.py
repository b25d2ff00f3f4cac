"""The session of a browser: log in with a key, ask who one is, log out. For the dashboard alone: programs have keys."""

from __future__ import annotations

from duly import __version__
from duly.api.audited import check_audited
from duly.api.logins import Logins, csrf_of
from duly.api.operations import OPEN, Answer, Call, Identity, Operation, Routes
from duly.domain.tenancy.api_key import Secret
from duly.wire.schema.shapes import Nothing
from duly.wire.sessions import LogIn, Who

_PATH = "/v1/session"
_BODY_BYTES_MAX = 1_000


def operations(logins: Logins) -> list[Operation]:
    """Give the operations over these log-ins."""
    routes = Routes("session")

    @routes.add(
        "POST",
        _PATH,
        scope=OPEN,
        body=LogIn,
        answers={200: Who},
        body_bytes_max=_BODY_BYTES_MAX,
        in_session=False,
        is_keyed=False,
        refuses=("rate_limited",),
    )
    async def open_session(call: Call[Nothing, LogIn]) -> Answer:
        """Log in with a key."""
        logins.check_origin(call.headers, is_required=False)
        before, user_agent = logins.token_in(call.headers), call.headers.get("user-agent", "")
        identity, token = await logins.open(call.body.key.strip(), call.request_id, call.address, user_agent, before)
        return _told(logins, identity, token)

    @routes.add("GET", _PATH, scope="jobs:read", answers={200: Who}, in_session=False)
    async def read_session(call: Call[Nothing, None]) -> Answer:
        """Say who asks, and let the browser keep its cookie for another while."""
        is_session = call.identity.session_id is not None
        return _told(logins, call.identity, logins.token_in(call.headers) if is_session else None)

    @routes.add("DELETE", _PATH, scope="jobs:read", answers={204: None}, in_session=False)
    async def close_session(call: Call[Nothing, None]) -> Answer:
        """Log out."""
        token = logins.token_in(call.headers)
        if token is not None:
            await logins.close(token, call.database.actor)
        return Answer(204, headers={"Set-Cookie": logins.cookie_for(None)})

    check_audited(routes.operations)
    return routes.operations


def _told(logins: Logins, identity: Identity, token: Secret | None) -> Answer:
    who = Who(
        tenant=identity.tenant,
        tenant_name=identity.key.tenant_name,
        key_id=identity.key.key_id,
        key_name=identity.key.name,
        scopes=sorted(identity.scopes),
        is_operator=identity.is_operator,
        csrf=None if token is None else csrf_of(token),
        version=__version__,
    )
    return Answer(200, who, {} if token is None else {"Set-Cookie": logins.cookie_for(token)})
