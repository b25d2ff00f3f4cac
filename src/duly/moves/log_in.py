"""Log in and out: a session stands for a key, in a cookie that no script can read. What is kept of it is a hash."""

from __future__ import annotations

from base64 import b32encode
from datetime import timedelta

from duly.clock import Rng
from duly.domain.api_key import ApiKey, Secret
from duly.domain.audit import Action, Subject
from duly.moves.note import actor_of, audited, note
from duly.store import browser_sessions
from duly.store.database import Database

SESSION_KEPT = timedelta(hours=12)
_TOKEN_BYTES = 32


@audited
async def log_in(database: Database, rng: Rng, key: ApiKey) -> Secret:
    """Open a session for a key. Returns what the browser keeps of it."""
    token = Secret(b32encode(rng.secret(_TOKEN_BYTES)).decode().rstrip("=").lower())
    await browser_sessions.open_session(database, token.digest(), key.key_id, key.tenant, SESSION_KEPT)
    await note(database, key.tenant, Action.SESSION_OPENED, Subject("key", key.key_id, key.name))
    return token


@audited
async def log_out(database: Database, token: Secret) -> None:
    """End a session."""
    tenant, actor = await browser_sessions.close(database, token.digest()), actor_of(database)
    if tenant is not None and actor is not None:
        await note(database, tenant, Action.SESSION_CLOSED, Subject("key", actor.key_id, actor.name))
