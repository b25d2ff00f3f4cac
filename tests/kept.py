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

from duly.clock import Clock
from duly.store.database import Database

KEPT = "kept by the tests"


class Kept(Database):
    """Lent to one test after another."""

    def __init__(self, url: str, **more: Any) -> None:
        super().__init__(url, size_max=8, application=KEPT, **more)

    @asynccontextmanager
    async def lent(self, clock: Clock) -> AsyncIterator[Database]:
        """Let one test use it, under the clock of that test."""
        self.clock = clock
        await self._make_sure()
        try:
            yield self
        finally:
            await end_what_is_under_way()
            if self._pool is not None and len(self._pool._idle) < len(self._pool._opened):
                await self.close()

    async def _make_sure(self) -> None:
        """Begin anew unless every connection still answers: its server may be gone, or its database."""
        try:
            for connection in self._pool._idle if self._pool is not None else []:
                await connection.execute("select")
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await self.close()
        if self._pool is None:
            await self.open()


async def end_what_is_under_way() -> None:
    """Cancel what a test has left behind on our loop, as the end of a loop would."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
