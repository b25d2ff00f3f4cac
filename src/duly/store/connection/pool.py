"""The pool: connections are opened on demand, lent to one user at a time, and kept.

The driver's own pool returns each connection in a task of its own, because it has to undo what a user may have left
behind. Ours leave nothing behind, so after a clean use a connection is simply put back: that saves a tenth of the time
of a submit. One that was interrupted, or whose server ends, is in an unknown state and is closed; so is one whose
server takes no writes: a failover may have led us to a standby for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import asyncpg

from duly.store.connection.hosts import Hosts

# A server process caches everything it has ever looked up, so now and then a connection is replaced.
_LENT_MAX = 50_000
_CLOSE_SECONDS = 5.0
_GOODBYES = ("FATAL", "PANIC")

if TYPE_CHECKING:
    Lent = asyncpg.Connection[asyncpg.Record]


class Pool:
    """At most `size_max` connections to one PostgreSQL. `on_open` is called first with each new one."""

    def __init__(
        self,
        url: str,
        size_max: int,
        settings: Mapping[str, Any],
        on_open: Callable[[Lent], Awaitable[None]] | None = None,
    ) -> None:
        self._hosts = Hosts(url)
        self._settings = settings
        self._on_open = on_open
        self._room = asyncio.Semaphore(size_max)
        self._opened: set[Lent] = set()
        self._idle: list[Lent] = []
        self._lent = 0
        self._is_closed = False

    def acquire(self) -> Loan:
        """Lend a connection for an `async with`: an idle one, or a new one; wait while all are lent."""
        return Loan(self)

    async def lend(self) -> Lent:
        """Return a connection, which the caller must give to `take_back`."""
        await self._room.acquire()
        try:
            return self._idle_one() or await self._open()
        except BaseException:
            self._room.release()
            raise

    async def take_back(self, connection: Lent, error: BaseException | None) -> None:
        """Keep a connection after its use, or close it when its state is unknown."""
        try:
            self._lent += 1
            if self._lent % _LENT_MAX and _is_sound(connection, error):
                self._idle.append(connection)
            else:
                # Shielded, because a cancelled caller may be cancelled again, and the statement must not go on without
                # us.
                await asyncio.shield(self._close(connection))
        finally:
            self._room.release()

    def terminate(self) -> None:
        """Close every connection at once, lent or not, and open no more."""
        self._is_closed = True
        for connection in self._opened:
            connection.terminate()
        self._opened.clear()
        self._idle.clear()

    def _idle_one(self) -> Lent | None:
        """Return the connection that was used last, because its caches are warm. The server may have closed some meanwhile."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
            self._opened.discard(connection)
        return None

    async def _open(self) -> Lent:
        connection = await self._hosts.connect(**self._settings)
        self._opened.add(connection)
        if self._on_open is not None:
            await self._begin(connection, self._on_open)
        if self._is_closed:
            self.terminate()  # its user sees it at the first statement
        return connection

    async def _begin(self, connection: Lent, on_open: Callable[[Lent], Awaitable[None]]) -> None:
        try:
            await on_open(connection)
        except BaseException:
            self._opened.discard(connection)
            connection.terminate()
            raise

    async def _close(self, connection: Lent) -> None:
        """Close a connection; a statement still under way is cancelled first."""
        with suppress(Exception):
            await connection.close(timeout=_CLOSE_SECONDS)
        self._opened.discard(connection)


class Loan:
    """A connection lent for an `async with`. A class, because a generator would cost as much as the rest of the pool."""

    __slots__ = ("_connection", "_pool")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def __aenter__(self) -> Lent:
        self._connection = await self._pool.lend()
        return self._connection

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        await self._pool.take_back(self._connection, error)


def _is_sound(connection: Lent, error: BaseException | None) -> bool:
    """Return whether the server has answered, and waits for the next statement."""
    if error is not None and not (isinstance(error, asyncpg.PostgresError) and error.severity_en not in _GOODBYES):
        return False
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return False
    return not connection.is_closed() and not connection.is_in_transaction()
