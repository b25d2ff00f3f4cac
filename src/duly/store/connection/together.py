"""Several statements or moves as one transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from duly.store.connection.database import TRIES_MAX, Database, Unavailable, is_rolled_back
from duly.store.connection.session import Inside, RolledBack

T = TypeVar("T")
OpenSession = Callable[[], AbstractAsyncContextManager[Database]]


async def together(database: Database, do: Callable[[Database], Awaitable[T]]) -> T:
    """Run something in one transaction, and retry all of it on conflict.

    In an open transaction it is a part of that one, undone alone when it fails.
    """
    if database.in_transaction:
        async with database.transaction():
            return await do(database)
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            async with database.transaction() as connection:
                return await do(Inside(database, connection))
        except Exception as error:
            if not is_rolled_back(error):
                raise
            if not tries_left:
                raise Unavailable(f"the database refused {TRIES_MAX} times: {error}") from error
    raise AssertionError("unreachable")


async def in_session(open_session: OpenSession, do: Callable[[Database], Awaitable[T]]) -> T:
    """Run something in one session of a tenant, and retry all of it on conflict. Raises RolledBack."""
    for tries_left in reversed(range(TRIES_MAX)):
        try:
            async with open_session() as session:
                return await do(session)
        except RolledBack:
            if not tries_left:
                raise
    raise AssertionError("unreachable")
