"""Several statements, moves even, as one transaction: all of it is kept, or none."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

import asyncpg

from duly.store.connection.database import TRIES_MAX, Database, Unavailable, is_rolled_back, translated
from duly.store.connection.session import RolledBack
from duly.store.connection.transactions import savepoint

T = TypeVar("T")
OpenSession = Callable[[], AbstractAsyncContextManager[Database]]


class Together(Database):
    """A database of which every statement runs in one transaction. Nothing is tried again here: the whole is, by `together`."""

    in_transaction = True

    def __init__(self, database: Database, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self.url = database.url
        self.pooler = database.pooler
        self.clock = database.clock
        self.actor = database.actor
        self.keyring = database.keyring
        self._pool = None
        self._connection = connection
        self._outside = database

    @property
    def outside(self) -> Database:
        """The database that the transaction was opened on."""
        return self._outside

    async def _again(self, ask: Callable[[Any], Awaitable[Any]]) -> Any:
        try:
            return await ask(self._connection)
        except Exception as error:
            raise translated(error) from error

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        """Open a savepoint."""
        try:
            async with savepoint(self._connection):
                yield self._connection
        except Exception as error:
            raise translated(error) from error


async def together(database: Database, do: Callable[[Database], Awaitable[T]]) -> T:
    """Do something in one transaction, and all of it again when the server has rolled it back.

    In a transaction that is open already it is a part of that one, undone alone when it fails.
    """
    if database.in_transaction:
        async with database.transaction():
            return await do(database)
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            async with database.transaction() as connection:
                return await do(Together(database, connection))
        except Exception as error:
            if not is_rolled_back(error):
                raise
            if not tries_left:
                raise Unavailable(f"the database has refused {TRIES_MAX} times: {error}") from error
    raise AssertionError("unreachable")


async def in_session(open_session: OpenSession, do: Callable[[Database], Awaitable[T]]) -> T:
    """Do something in one session of a tenant, and all of it again when the server has rolled it back. Raises RolledBack."""
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            async with open_session() as session:
                return await do(session)
        except RolledBack:
            if not tries_left:
                raise
    raise AssertionError("unreachable")
