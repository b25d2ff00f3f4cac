"""The connection to PostgreSQL: a pool that reconnects, and errors of three kinds.

A statement either answers, is `Unavailable` (the connection was lost, so a commit may or may not have happened, or the
server has no disk space or takes no writes: try again), or is refused with one of the domain's errors. Serialization
failures, deadlocks and conflicts with a new partition are retried here, invisibly.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy
from datetime import datetime
from errno import ENOSPC
from os import strerror
from typing import Any, Protocol, Self, TypeVar

import asyncpg

from duly.clock import Clock, SystemClock
from duly.domain.errors import DatabaseUnusable, DulyError
from duly.domain.tenancy.audit import Actor
from duly.domain.tenancy.sealing import FindKeyring, no_keyring
from duly.postgres.unix_socket import is_our_own
from duly.settings import redacted
from duly.store.connection.hosts import SERVER_ASKS, NoHost
from duly.store.connection.pool import Pool
from duly.store.connection.refusals import refusal
from duly.store.connection.transactions import transaction

T = TypeVar("T")
VERSION_MIN = 150_000
TRIES_MAX = 4
_TO_THE_PRIMARY = (
    "point DULY_DATABASE_URL at the primary, or name the hosts of both and target_session_attrs=read-write"
)
_CLOCK = "select duly.clock_now()"
# A server is identified by its start moment.
_SERVER_CLOCK = "select duly.clock_now(), pg_postmaster_start_time()"
CONFLICTS = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
# A migration has changed what a prepared statement returns; the driver prepares it anew.
_OUTDATED = (asyncpg.InvalidCachedStatementError, asyncpg.OutdatedSchemaCacheError)
_LOST = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.QueryCanceledError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.exceptions.InternalClientError,
)


class Unavailable(DulyError):
    """The database did not answer, so the statement may or may not have been carried out; or it cannot be carried out now."""


class DiskFull(Unavailable):
    """The database has no disk space. Nothing was written; try again when there is space."""

    def __init__(self, words: str) -> None:
        super().__init__(f"the database is out of space: {words}. Nothing was written: free some space and try again")


class ReadOnly(Unavailable):
    """The server takes no writes. Nothing was written; the next connection may lead to one that does."""

    def __init__(self, words: str) -> None:
        super().__init__(f"the database is read-only ({words}): {_TO_THE_PRIMARY}")


class Connection(Protocol):
    """The interface that statements run on: our pool, or a caller's own asyncpg connection."""

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        """Run one statement and return its rows."""
        ...


def is_connection_lost(error: BaseException) -> bool:
    """Return whether `error` means that the connection, and with it the answer, was lost."""
    if isinstance(error, asyncpg.InterfaceError):
        return not isinstance(error, ValueError)  # what the driver could not encode was never sent
    return isinstance(error, _LOST)


def is_rolled_back(error: BaseException) -> bool:
    """Return whether the server rolled a statement back for a conflict, so that it may be retried.

    A row for a default partition is refused when the partition of its day is attached meanwhile. Unlike a failed check,
    that error has no constraint's name; retried, the row goes where it belongs.
    """
    if isinstance(error, asyncpg.CheckViolationError):
        return error.as_dict().get("constraint_name") is None
    return isinstance(error, (*CONFLICTS, *_OUTDATED))


def is_disk_full(error: BaseException) -> bool:
    """Return whether the server has no disk space. One that cannot even greet a new connection says so only in words."""
    return isinstance(error, asyncpg.DiskFullError) or (
        isinstance(error, asyncpg.PostgresError) and strerror(ENOSPC) in str(error)
    )


class Database:
    """A pool of connections to one PostgreSQL."""

    in_transaction = False  # whether all statements are one transaction; a subclass may say so
    actor: Actor | None = None  # the caller; None: the engine itself, which is not audited

    def __init__(
        self,
        url: str,
        *,
        size_max: int = 4,
        pooler: bool = False,
        command_timeout: float = 30.0,
        clock: Clock | None = None,
        application: str = "duly",
        keyring: FindKeyring = no_keyring,
    ) -> None:
        self.url = url
        self.pooler = pooler
        self.clock: Clock = clock or SystemClock()
        self.keyring = keyring  # seals the secrets of jobs before they are written
        self._pool: Pool | None = None
        self._size_max = size_max
        self._settings: dict[str, Any] = {"command_timeout": command_timeout, "timeout": 5.0}
        if pooler:
            self._settings["statement_cache_size"] = 0
        else:
            self._settings["server_settings"] = {"application_name": application}

    async def open(self) -> Database:
        """Check that the database answers and can be used. Raises DatabaseUnusable, naming the remedy."""
        try:
            self._pool = Pool(self.url, self._size_max, self._settings, self._connected)
            async with self._pool.acquire() as connection:
                row = await connection.fetchrow(
                    "select current_setting('server_version_num')::int as version, pg_is_in_recovery()"
                    " or current_setting('transaction_read_only')::bool as read_only"
                )
        except asyncpg.PostgresError as error:
            await self.close()
            if is_disk_full(error):
                raise DatabaseUnusable(str(DiskFull(str(error)))) from None
            if isinstance(error, asyncpg.TooManyConnectionsError):
                raise DatabaseUnusable(
                    f"the database has no free connection: {error}. Raise max_connections, or close some"
                ) from None
            raise DatabaseUnusable(f"the database refused the login: {error}. Check DULY_DATABASE_URL") from None
        except NoHost as error:
            await self.close()
            raise DatabaseUnusable(
                f"{redacted(self.url)}: {error}. If a failover is under way, try again; else promote one, or correct the"
                " list of hosts"
            ) from None
        except (OSError, TimeoutError, asyncpg.InterfaceError, ValueError, OverflowError) as error:
            await self.close()
            raise DatabaseUnusable(_no_answer(self.url, error)) from None
        assert row is not None
        try:
            _check_usable(row["version"], row["read_only"])
        except DatabaseUnusable:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Close every connection."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None

    async def __aenter__(self) -> Database:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def outside(self) -> Database:
        """The same database outside of any transaction, for what others must see before it ends."""
        return self

    def acting_as(self, actor: Actor | None) -> Self:
        """Return the same database for requests of an actor, or of none."""
        named = copy(self)
        named.actor = actor
        return named

    async def fetch(self, query: str, *args: Any) -> list[asyncpg.Record]:
        """Run one statement as a transaction of its own and return its rows."""
        rows: list[asyncpg.Record] = await self._retried(lambda connection: connection.fetch(query, *args))
        return rows

    async def _retried(self, operation: Callable[[Any], Awaitable[Any]]) -> Any:
        """Retry on conflict."""
        for tries_left in reversed(range(TRIES_MAX)):
            try:
                async with self.pool.acquire() as connection:
                    return await operation(connection)
            except Exception as error:
                if not is_rolled_back(error):
                    raise translated(error) from error
                if not tries_left:
                    raise Unavailable(f"the database refused {TRIES_MAX} times: {error}") from error
        raise AssertionError("unreachable")

    async def fetchrow(self, query: str, *args: Any) -> asyncpg.Record | None:
        """Run one statement and return its first row."""
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None

    async def fetch_one(self, query: str, *args: Any) -> asyncpg.Record:
        """Run one statement that always has a row, and return that."""
        return (await self.fetch(query, *args))[0]

    async def fetch_row_with(self, build: Callable[[asyncpg.Record], T], query: str, *args: Any) -> T | None:
        """Run one statement and build something with a function from its first row; None when it has none."""
        rows = await self.fetch(query, *args)
        return build(rows[0]) if rows else None

    async def fetch_row_as(self, struct: Callable[..., T], query: str, *args: Any) -> T | None:
        """Run one statement and return its first row as a struct, whose fields are its columns in order; None when it
        has none.
        """
        return await self.fetch_row_with(lambda row: struct(*row), query, *args)

    async def fetchval(self, query: str, *args: Any) -> Any:
        """Run one statement and return the first value of its first row."""
        row = await self.fetchrow(query, *args)
        return row[0] if row else None

    async def execute(self, query: str, *args: Any) -> None:
        """Run one statement without reading rows; without arguments it may be several."""
        if args:
            await self.fetch(query, *args)
        else:
            await self._retried(lambda connection: connection.execute(query))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        """Open a transaction of several statements; the server ends one that is idle for long."""
        try:
            async with self.pool.acquire() as connection, transaction(connection):
                yield connection
        except Exception as error:
            raise translated(error) from error

    async def _connected(self, connection: Any) -> None:
        """Report a new connection to our clock: after a failover it leads to a server with a clock of its own."""
        with suppress(asyncpg.UndefinedFunctionError, asyncpg.InvalidSchemaNameError):  # nothing is migrated yet
            asking = "" if self.pooler else f", {SERVER_ASKS}"
            read_at, server, *_ = await connection.fetchrow(_SERVER_CLOCK + asking)
            self.clock.connected(read_at, server)

    def another_pool(self, size_max: int) -> Pool:
        """Return another pool to the same database, for those who must not share connections with us."""
        return Pool(self.url, size_max, self._settings, self._connected)

    def beside(self, size_max: int, *, command_timeout: float | None = None) -> Self:
        """Return the same database over connections of its own, for work that must not wait for ours; it is closed
        separately.
        """
        another = copy(self)
        if command_timeout is not None:
            another._settings = self._settings | {"command_timeout": command_timeout}
        another._pool = another.another_pool(size_max)
        return another

    async def read_clock(self) -> datetime:
        """Read the database clock and adjust our own."""
        read_at: datetime = await self.fetchval(_CLOCK)
        self.clock.observe(read_at)
        return read_at

    @property
    def pool(self) -> Pool:
        """The open pool."""
        if self._pool is None:
            raise Unavailable("the database is not open")
        return self._pool


def translated(error: Exception) -> Exception:
    """Translate a driver's error into one of ours, where we have one."""
    if isinstance(error, DulyError):
        return error
    if isinstance(error, asyncpg.PostgresError) and (
        refused := refusal(error.sqlstate or "", str(error.args[0]), error.as_dict().get("detail"))
    ):
        return refused
    if is_disk_full(error):
        return DiskFull(str(error.args[0]))
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return ReadOnly(str(error.args[0]))
    if isinstance(error, NoHost):
        return Unavailable(f"the database is out of reach: {error}")
    if is_connection_lost(error):
        return Unavailable(
            f"the database did not respond: {': '.join(filter(None, (type(error).__name__, str(error))))}"
        )
    return error


def _no_answer(url: str, error: Exception) -> str:
    """Say that no server answers at this address, and what to do about it, depending on who named the address."""
    remedy = "Start it with `duly up`" if is_our_own(url) else "Check the address, and that its server runs"
    return f"no database responds at {redacted(url)}: {str(error) or type(error).__name__}. {remedy}"


def _check_usable(version: int, read_only: bool) -> None:
    if version < VERSION_MIN:
        raise DatabaseUnusable(
            f"PostgreSQL {version // 10_000} is too old; Duly needs {VERSION_MIN // 10_000} or newer"
        )
    if read_only:
        raise DatabaseUnusable(f"the database is read-only (a standby?): {_TO_THE_PRIMARY}")
