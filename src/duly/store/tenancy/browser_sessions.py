"""Browser sessions of people who logged in with a key, by the hash of their cookie."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tenancy/browser_sessions")


class BrowserSession(msgspec.Struct, frozen=True):
    """The key of a session, and how long it is still valid. Its id grants nothing."""

    session_id: UUID
    key_id: str
    left: timedelta


class ListedSession(msgspec.Struct, frozen=True):
    """A session as people see it: whose, since when, and from where."""

    session_id: UUID
    tenant: int
    key_id: str
    key_name: str
    opened_at: datetime
    last_used_at: datetime
    expires_at: datetime
    address: str
    user_agent: str


class Revoked(msgspec.Struct, frozen=True):
    """The key of a session that was revoked."""

    tenant: int
    key_id: str
    key_name: str


async def open_session(
    database: Database,
    token_hash: bytes,
    key_id: str,
    tenant: int,
    kept: timedelta,
    *,
    address: str,
    user_agent: str,
    most: int,
) -> None:
    """Store a session; of the sessions of its key, `most` stay, and the least recently used end."""
    await database.execute(SQL["open"], token_hash, key_id, tenant, kept, address, user_agent, most)


async def find(database: Database, token_hash: bytes) -> BrowserSession | None:
    """Read a valid session."""
    return await database.fetch_row_as(BrowserSession, SQL["find"], token_hash)


async def prolong(database: Database, token_hash: bytes, kept: timedelta) -> None:
    """Extend a session that is in use."""
    await database.execute(SQL["prolong"], token_hash, kept)


async def close(database: Database, token_hash: bytes) -> int | None:
    """End a session. Returns its owner; None: there was none."""
    tenant: int | None = await database.fetchval(SQL["close"], token_hash)
    return tenant


async def page(
    database: Database, tenant: int, key_id: str | None, after: tuple[datetime, UUID] | None, limit: int
) -> list[ListedSession]:
    """Read valid sessions, of a tenant or of one of its keys, the last opened first."""
    opened_at, session_id = after or (None, None)
    rows = await database.fetch(SQL["page"], tenant, key_id, opened_at, session_id, limit)
    return [ListedSession(*row) for row in rows]


async def revoke(database: Database, session_id: UUID, tenant: int | None, key_id: str | None) -> Revoked | None:
    """End a session of a tenant, or of one of its keys. Returns its owner; None: there was none."""
    return await database.fetch_row_as(Revoked, SQL["revoke"], session_id, tenant, key_id)
