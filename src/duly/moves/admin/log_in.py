"""Log-in and log-out: a session is a key, in a cookie that no script can read. Only its hash is stored."""

from __future__ import annotations

from base64 import b32encode
from datetime import timedelta
from uuid import UUID

from duly.clock import Rng
from duly.domain.errors import NotFound
from duly.domain.runs.payload import storable
from duly.domain.tenancy.api_key import ApiKey, Secret
from duly.domain.tenancy.audit import Action, Subject
from duly.moves.admin.audit import actor_of, audited, record
from duly.store.connection.database import Database
from duly.store.tenancy import browser_sessions

SESSION_KEPT = timedelta(hours=12)
SESSIONS_OF_KEY_MAX = 100
_USER_AGENT_CHARACTERS_MAX = 200
_TOKEN_BYTES = 32


@audited
async def log_in(database: Database, rng: Rng, key: ApiKey, address: str, user_agent: str) -> Secret:
    """Open a session for a key. Returns the cookie's value; the address and the user agent are for people to read."""
    token = Secret(b32encode(rng.secret(_TOKEN_BYTES)).decode().rstrip("=").lower())
    await browser_sessions.open_session(
        database,
        token.digest(),
        key.key_id,
        key.tenant,
        SESSION_KEPT,
        address=address,
        user_agent=storable(user_agent, _USER_AGENT_CHARACTERS_MAX),
        most=SESSIONS_OF_KEY_MAX,
    )
    await record(database, key.tenant, Action.SESSION_OPENED, Subject("key", key.key_id, key.name))
    return token


@audited
async def log_out(database: Database, token: Secret) -> None:
    """End a session."""
    tenant, actor = await browser_sessions.close(database, token.digest()), actor_of(database)
    if tenant is not None and actor is not None:
        await record(database, tenant, Action.SESSION_CLOSED, Subject("key", actor.key_id, actor.name))


@audited
async def revoke_session(database: Database, session_id: UUID, *, tenant: int | None, key_id: str | None) -> None:
    """End a session of a tenant, or of one of its keys, on behalf of another. Raises NotFound."""
    revoked = await browser_sessions.revoke(database, session_id, tenant, key_id)
    if revoked is None:
        raise NotFound(f"no session {session_id}; GET /v1/sessions lists them")
    await record(database, revoked.tenant, Action.SESSION_CLOSED, Subject("key", revoked.key_id, revoked.key_name))
