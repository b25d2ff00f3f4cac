"""A database whose connections outlive a test.

A process of PostgreSQL that meets our schema for the first time needs five times as long for a move as one that has met it, and
most tests are a few moves long. So tests share a pool: whatever a test leaves under way is ended with it, and a connection that
did not come back, or does not answer any more, is not handed on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from duly.clock import Clock, Rng
from duly.domain.tenancy.sealing import Keyring, new_key_line, read_keyring
from duly.store.connection.database import Database
from duly.store.connection.pool import Pool
from duly.store.connection.session import Sessions

KEPT = "kept by the tests"
KEYRING = read_keyring(new_key_line(Rng().secret).reveal(), "test")


def a_keyring() -> Keyring:
    """Give keys to seal secrets with, the same for a whole run of tests."""
    return KEYRING


class Kept(Database):
    """Lent to one test after another."""

    def __init__(self, url: str, **more: Any) -> None:
        super().__init__(url, size_max=8, application=KEPT, keyring=a_keyring, **more)

    @asynccontextmanager
    async def lent(self, clock: Clock) -> AsyncIterator[Database]:
        """Let one test use it, under the clock of that test."""
        self.clock = clock
        await self._make_sure()
        try:
            yield self
        finally:
            await end_what_is_under_way()
            if self._pool is not None and not is_back(self._pool):
                await self.close()

    async def _make_sure(self) -> None:
        """Begin anew unless every connection still answers: its server may be gone, or its database."""
        if self._pool is not None and not await all_answer(self._pool):
            await self.close()
        if self._pool is None:
            await self.open()


class KeptSessions:
    """Sessions over such connections, lent to one test after another."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sessions: Sessions | None = None

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Sessions]:
        """Let one test use them."""
        if self._sessions is not None and not await all_answer(self._sessions._pool):
            await self.close()
        self._sessions = opened = self._sessions or Sessions(self._database)
        try:
            yield opened
        finally:
            if not is_back(opened._pool):
                await self.close()

    async def close(self) -> None:
        """Close every connection."""
        if self._sessions is not None:
            await self._sessions.close()
            self._sessions = None


async def all_answer(pool: Pool) -> bool:
    """Say whether every connection that was kept can be used."""
    return all([await answers(connection) for connection in pool._idle])


async def answers(connection: asyncpg.Connection) -> bool:
    """Say whether a connection that was kept can be used."""
    try:
        await connection.execute("select")
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
        # The last is raised where the server's goodbye has come, and the end of the connection has not.
        return False
    return True


def is_back(pool: Pool) -> bool:
    """Say whether a test has given back all that it was lent, and closed nothing."""
    return not pool._is_closed and len(pool._idle) == len(pool._opened)


async def end_what_is_under_way() -> None:
    """Cancel what a test has left behind on our loop, as the end of a loop would."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
