"""Locks: migrations take theirs briefly, give them up for others, and are rolled back where they would keep them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

import asyncpg

from duly.domain.errors import DatabaseUnusable, DulyError, KeyBusy
from duly.store.connection.database import Database
from duly.store.connection.statements import load
from duly.store.schema.older import ALIVE_SECONDS, OlderAlive

T = TypeVar("T")
SQL = load("schema/locks")
# A lock of the transaction, not of the session, so that it works through a pooler; the number is "duly" in ASCII.
LOCK = "select pg_advisory_xact_lock(1685417081)"
HOLD_MAX = timedelta(seconds=1)  # how long a migration may keep its locks, in a database that is in use
# A change of a large table may take longer than the server's timeouts allow; so may waiting for the lock.
_UNHURRIED = "set local statement_timeout = 0; set local lock_timeout = 0"
# A waiter for a table lock blocks all others behind it, so no wait is long: it is given up and tried again.
_BRIEFLY = "set local lock_timeout = '200ms'"
_TRIES_MAX = 100
_HELD_TRIES = 3
_YIELD_EVERY = 10  # tries; in each tenth, autovacuums are made to yield first
_REST_SECONDS = 0.3


class HeldTooLong(DulyError):
    """A migration kept its locks for longer than it may, and was rolled back."""


@asynccontextmanager
async def held_at_most(connection: Any, seconds: float | None) -> AsyncIterator[None]:
    """Limit the time of statements that lock tables, all together. Raises HeldTooLong.

    The server limits each by itself, should this process be frozen.
    """
    await connection.execute(f"set local statement_timeout = {round((seconds or 0) * 1000)}")
    try:
        async with asyncio.timeout(seconds):
            yield
    except (TimeoutError, asyncpg.QueryCanceledError):
        raise HeldTooLong(f"{seconds or 0:g} s") from None


async def in_patience(database: Database, act: Callable[[Any], Awaitable[T]], what: str = "") -> T:
    """Act in a transaction under the lock of migrations, and again when a table is locked, or was kept locked too long."""
    held, until = 0, database.clock.monotonic() + ALIVE_SECONDS + _REST_SECONDS
    for number in range(1, _TRIES_MAX + 1):
        try:
            return await _in_transaction(database, act, vacuums_yield=number % _YIELD_EVERY == 0)
        except OlderAlive as error:
            if database.clock.monotonic() > until or number == _TRIES_MAX:
                raise DatabaseUnusable(str(error)) from None
            await database.clock.sleep(_REST_SECONDS)
        except KeyBusy:  # as for any lock that was not granted in time: another session holds a table to be changed
            await database.clock.sleep(_REST_SECONDS)
        except HeldTooLong as error:
            held += 1
            if held == _HELD_TRIES:
                raise DatabaseUnusable(
                    f"{what} would keep its locks for more than {error}, and was rolled back: claims would wait."
                    " Run it in a quiet hour, and allow it longer: duly migrate --hold PT10S"
                ) from None
            await database.clock.sleep(_REST_SECONDS)
        except asyncpg.InsufficientPrivilegeError as error:
            raise DatabaseUnusable(await _not_ours(database, error)) from None
    raise await _locked(database)


async def without_queue(database: Database, statement: str) -> str:
    """Run a statement in a transaction of its own, and again when a table is locked, so that nobody waits behind it for
    long. Return its status.
    """
    for _ in range(_TRIES_MAX):
        try:
            async with database.transaction() as connection:
                await connection.execute(f"{_UNHURRIED}; {_BRIEFLY}")
                return await connection.execute(statement)
        except KeyBusy:
            await database.clock.sleep(_REST_SECONDS)
    raise await _locked(database)


async def _in_transaction(database: Database, act: Callable[[Any], Awaitable[T]], *, vacuums_yield: bool) -> T:
    async with database.transaction() as connection:
        await connection.execute(f"{_UNHURRIED}; {LOCK}")
        if vacuums_yield:
            await _make_vacuums_yield(connection)
        await connection.execute(_BRIEFLY)
        return await act(connection)


async def _make_vacuums_yield(connection: Any) -> None:
    """Wait for tables that are being vacuumed, in a mode that claims do not wait for.

    An autovacuum yields only to a waiter that has waited for `deadlock_timeout`, which is too long for any other mode.
    """
    await connection.execute(SQL["wait_for_vacuums"])
    for row in await connection.fetch(SQL["vacuumed"]):
        await connection.execute(f"lock table only {row[0]} in share update exclusive mode")


async def _locked(database: Database) -> DatabaseUnusable:
    return DatabaseUnusable(
        f"the schema could not be migrated: {await _holder(database)} keeps one of its tables locked."
        " See pg_stat_activity for a long transaction, end it, then run `duly migrate`"
    )


async def _holder(database: Database) -> str:
    """Describe the oldest holder of one of our tables, as far as we may see it."""
    row = await database.fetchrow(SQL["holder"])
    return f"process {row['pid']} ({row['description']})" if row else "another session"


async def _not_ours(database: Database, error: Exception) -> str:
    """Explain why the role may not migrate, and which role may."""
    if owners := await database.fetch(SQL["owners"]):
        names = " or ".join(sorted(row[0] for row in owners))
        return f"the role may not change the schema duly: {error}. Migrate as its owner, {names}"
    return f"the role may not create the schema duly: {error}. Grant it CREATE on the database"
