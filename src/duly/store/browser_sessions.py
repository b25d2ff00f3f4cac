"""Sessions of people who have logged in with a key, by the hash of what their browser keeps."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from duly.store.database import Database
from duly.store.statements import load

SQL = load("browser_sessions")


class BrowserSession(msgspec.Struct, frozen=True):
    """The key that a session was opened with, and how long it still holds."""

    key_id: str
    left: timedelta


async def open_session(database: Database, token_hash: bytes, key_id: str, tenant: int, kept: timedelta) -> None:
    """Keep a session."""
    await database.execute(SQL["open"], token_hash, key_id, tenant, kept)


async def find(database: Database, token_hash: bytes) -> BrowserSession | None:
    """Read a session that holds."""
    row = await database.fetchrow(SQL["find"], token_hash)
    return BrowserSession(*row) if row else None


async def prolong(database: Database, token_hash: bytes, kept: timedelta) -> None:
    """Let a session that is in use hold from now on."""
    await database.execute(SQL["prolong"], token_hash, kept)


async def close(database: Database, token_hash: bytes) -> int | None:
    """End a session. Says whose it was; none: there was none."""
    tenant: int | None = await database.fetchval(SQL["close"], token_hash)
    return tenant


async def forget(database: Database, limit: int) -> None:
    """Drop sessions that have ended."""
    await database.execute(SQL["forget"], limit)
