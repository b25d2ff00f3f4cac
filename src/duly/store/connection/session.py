"""Sessions: the statements of a tenant's request, in one transaction on one connection, as a role that sees only that
tenant.

A session has the interface of a `Database`, so every read and every move runs on it unchanged. Three things differ. All
of it is one transaction: committed when the block ends, and rolled back when it raises. It runs as the role `duly_api`:
row-level security hides every other tenant's rows from its reads, and each function that it may call checks whose the
rows are. And nothing is retried invisibly: when the server rolls back, the whole has to be run again, which
`RolledBack` says.

Nothing outlives the transaction, so it works through a pooler in transaction mode.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from duly.store.connection.database import Database, ReadOnly, Unavailable, is_rolled_back, translated
from duly.store.connection.pool import Pool
from duly.store.connection.transactions import begin, commit, savepoint

if TYPE_CHECKING:
    from duly.store.connection.pool import Lent

ROLE = "duly_api"
_READ_ONLY = "read only"


class RolledBack(Unavailable):
    """The server rolled the whole transaction back because of a conflict: nothing was done, and it may be run again."""


class Sessions:
    """Opens sessions over a pool of its own: a connection that changes roles would plan every statement anew."""

    def __init__(self, database: Database, *, size_max: int = 8) -> None:
        self._database = database
        self._pool: Pool = database.another_pool(size_max)

    def open(self, tenant: int, *, timeout: timedelta | None = None) -> Opening:
        """Open a transaction for a tenant, as an `async with`; no statement in it takes longer than `timeout`."""
        role = f"; set local role {ROLE}; set local duly.tenant = '{tenant:d}'"
        return Opening(self._database, self._pool, f"{begin()}{role}{_bound(timeout)}")

    def look(self, *, timeout: timedelta) -> Opening:
        """Open a read-only transaction over all tenants, for the operator."""
        return Opening(self._database, self._pool, f"{begin(_READ_ONLY)}{_bound(timeout)}")

    async def close(self) -> None:
        """Close every connection."""
        self._pool.terminate()

    async def __aenter__(self) -> Sessions:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Inside(Database):
    """A database whose statements all run in one open transaction. Nothing is retried here: the whole has to be."""

    in_transaction = True

    def __init__(self, database: Database, connection: Lent) -> None:
        self.url = database.url
        self.pooler = database.pooler
        self.clock = database.clock
        self.keyring = database.keyring
        self.actor = database.actor
        self._pool = None
        self._connection = connection
        self._outside = database

    @property
    def outside(self) -> Database:
        """The database that it was opened on. It is not bound to a tenant: check the owner first."""
        return self._outside

    def _failure(self, error: Exception) -> BaseException:
        return translated(error)

    async def _retried(self, operation: Callable[[Any], Awaitable[Any]]) -> Any:
        """Run once: the server would roll back more than this statement."""
        try:
            return await operation(self._connection)
        except Exception as error:
            raise self._failure(error) from error

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Open a savepoint: undo only the block when it raises."""
        try:
            async with savepoint(self._connection):
                yield self
        except Exception as error:
            raise self._failure(error) from error


class Session(Inside):
    """One transaction of one tenant."""

    def _failure(self, error: Exception) -> BaseException:
        return _failure(error)


class Opening:
    """A session for an `async with`."""

    __slots__ = ("_begin", "_connection", "_database", "_pool")

    def __init__(self, database: Database, pool: Pool, begin: str) -> None:
        self._database = database
        self._pool = pool
        self._begin = begin

    async def __aenter__(self) -> Session:
        try:
            self._connection = await self._pool.lend()
        except Exception as error:
            raise translated(error) from error
        try:
            await self._connection.execute(self._begin)  # without arguments, so all of it is one round trip
        except BaseException as error:
            await self._give_back(error)
            raise _failure(error) from error
        return Session(self._database, self._connection)

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        try:
            if error is None:
                await self._commit()
        except BaseException as failure:
            await self._give_back(failure)
            raise _failure(failure) from failure
        await self._give_back(error)
        if error is not None and (ours := _failure(error)) is not error:
            raise ours from error

    async def _commit(self) -> None:
        if not await commit(self._connection):
            raise RolledBack("a statement failed, so the transaction was rolled back; run it again")

    async def _give_back(self, error: BaseException | None) -> None:
        """Return the connection, rolled back; one that was interrupted or lost is closed, which rolls back too."""
        if error is not None and await self._is_rolled_back(error):
            error = None
        await self._pool.take_back(self._connection, error)

    async def _is_rolled_back(self, error: BaseException) -> bool:
        if not isinstance(error, Exception) or self._connection.is_closed():
            return False
        if isinstance(_failure(error), ReadOnly) and not self._begin.startswith(begin(_READ_ONLY)):
            return False  # it leads to a server that takes no writes
        try:
            await self._connection.execute("rollback")
        except Exception:  # noqa: BLE001 - it cannot be used any more, whatever it is: it is closed
            return False
        return True


def _bound(timeout: timedelta | None) -> str:
    return "" if timeout is None else f"; set local statement_timeout = {max(1, round(timeout.total_seconds() * 1000))}"


def _failure(error: BaseException) -> BaseException:
    """Translate a driver's error into one of ours; a rolled-back transaction may be run again."""
    if is_rolled_back(error):
        return RolledBack(f"the database rolled back: {error}; run it again")
    return translated(error) if isinstance(error, Exception) else error
