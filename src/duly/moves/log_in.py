"""Log in and out: a session stands for a key, in a cookie that no script can read. What is kept of it is a hash."""

from __future__ import annotations

from base64 import b32encode
from datetime import timedelta

from duly.clock import Rng
from duly.domain.api_key import ApiKey, Secret
from duly.store import browser_sessions
from duly.store.database import Database

SESSION_KEPT = timedelta(hours=12)
_TOKEN_BYTES = 32


async def log_in(database: Database, rng: Rng, key: ApiKey) -> Secret:
    """Open a session for a key. Returns what the browser keeps of it."""
    token = Secret(b32encode(rng.secret(_TOKEN_BYTES)).decode().rstrip("=").lower())
    await browser_sessions.open_session(database, token.digest(), key.key_id, key.tenant, SESSION_KEPT)
    return token


async def log_out(database: Database, token: Secret) -> None:
    """End a session."""
    await browser_sessions.close(database, token.digest())
