"""Callers' own connections: a submit inside their transaction, whatever driver they use.

A caller may hand us a connection of asyncpg, of psycopg, of SQLAlchemy (a session too), or any DB-API one, such as
Django's. Each is adapted to the interface of the moves. A blocking one answers at once: its `fetch` never suspends, so
`at_once` can drive a move on it without a loop. We begin and commit nothing. Inside a transaction each statement stands
behind a savepoint: a refusal is an error of the database, which would otherwise undo all that the caller has done, and
turn their commit into a silent rollback.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import msgspec
from asyncpg.pool import PoolConnectionProxy

from duly.domain.errors import DatabaseUnusable, InvalidOption
from duly.domain.tenancy.sealing import FindKeyring, no_keyring
from duly.store.connection.database import Connection, DiskFull, Unavailable, translated
from duly.store.connection.refusals import refusal
from duly.store.connection.statements import load
from duly.store.tables import jobs

SQL = load("connection/callers")
_STATEMENTS = {jobs.SQL[name]: text for name, text in SQL.items()}
_DISK_FULL = "53100"
_NOT_THERE = ("3F000", "42883", "42P01")  # a schema, a function, a table
_IN_TRANSACTION = 2  # as in libpq and every psycopg
_SAVE, _RELEASE, _UNDO = "savepoint duly_submit", "release savepoint duly_submit", "rollback to savepoint duly_submit"
_Answer = TypeVar("_Answer")
Rows = list[tuple[Any, ...]]


def plain(given: Any, keyring: FindKeyring = no_keyring) -> Connection:
    """Adapt a caller's blocking connection, cursor or session, and name the keyring. Raises InvalidOption when it is none."""
    if _is_sqlalchemy(given):
        return _Sqlalchemy(given, keyring)
    if _is(given, "psycopg", "Connection", "Cursor"):
        return _Psycopg(given, keyring)
    if _awaited_kind(given) is not None:
        raise InvalidOption(f"{_kind(given)} is asynchronous: use `await ….submit(…)` with it, not submit_sync")
    if callable(getattr(given, "cursor", None)):
        return _DbApi(given, keyring)
    raise _unknown(given)


def awaited(given: Any, keyring: FindKeyring = no_keyring) -> Connection:
    """Adapt a caller's asynchronous connection, cursor or session, and name the keyring.

    Raises InvalidOption when it is none.
    """
    if (kind := _awaited_kind(given)) is not None:
        return kind(given, keyring)
    if _is_sqlalchemy(given) or callable(getattr(given, "cursor", None)):
        raise InvalidOption(f"{_kind(given)} is synchronous: use submit_sync with it")
    raise _unknown(given)


def at_once(move: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Run a move on a blocking connection to its end, without a loop."""
    try:
        move.send(None)
    except StopIteration as done:
        answer: _Answer = done.value
        return answer
    move.close()
    raise AssertionError("a move on a plain connection waited for something")


class _Adapter:
    """A caller's connection, with the interface that the moves expect."""

    def __init__(self, given: Any, keyring: FindKeyring) -> None:
        self.keyring = keyring
        self._given = given

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        try:
            return await self._fetch(query, args)
        except Exception as error:
            raise _translated(error) from error

    async def _fetch(self, query: str, args: Sequence[Any]) -> Sequence[Any]:
        raise NotImplementedError


class _Asyncpg(_Adapter):
    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        try:
            if self._given.is_in_transaction():
                return await self._fetch_behind_a_savepoint(query, args)
            rows: Sequence[Any] = await self._given.fetch(query, *args)
        except asyncpg.PostgresError as error:
            raise _translated(error) from error
        except Exception as error:
            raise translated(error) from error
        return rows

    async def _fetch_behind_a_savepoint(self, query: str, args: Sequence[Any]) -> Sequence[Any]:
        await self._given.execute(_SAVE)
        try:
            rows: Sequence[Any] = await self._given.fetch(query, *args)
        except Exception:
            with suppress(Exception):  # the first error is the one to report
                await self._given.execute(f"{_UNDO}; {_RELEASE}")
            raise
        await self._given.execute(_RELEASE)
        return rows


class _AsyncPsycopg(_Adapter):
    async def _fetch(self, query: str, args: Sequence[Any]) -> Rows:
        connection = _connection_of(self._given)
        save, release, undo = _around(connection)
        try:
            # Statements of a pipeline are sent together: the savepoint costs no round trip.
            async with _pipeline(connection), connection.cursor(row_factory=_tuple_row()) as cursor:
                for statement in save:
                    await connection.execute(statement)
                await cursor.execute(_statement(query, "%s"), [_body(args)])
                for statement in release:
                    await connection.execute(statement)
                return _rows(await cursor.fetchall())
        except Exception:
            with suppress(Exception):
                for statement in undo:
                    await connection.execute(statement)
            raise


class _Psycopg(_Adapter):
    async def _fetch(self, query: str, args: Sequence[Any]) -> Rows:
        connection = _connection_of(self._given)
        save, release, undo = _around(connection)
        try:
            with _pipeline(connection), connection.cursor(row_factory=_tuple_row()) as cursor:
                for statement in save:
                    connection.execute(statement)
                cursor.execute(_statement(query, "%s"), [_body(args)])
                for statement in release:
                    connection.execute(statement)
                return _rows(cursor.fetchall())
        except Exception:
            with suppress(Exception):
                for statement in undo:
                    connection.execute(statement)
            raise


class _DbApi(_Adapter):
    async def _fetch(self, query: str, args: Sequence[Any]) -> Rows:
        # A wrapper such as Django's hides the driver's connection, but not its cursor.
        with (
            closing(self._given.cursor()) as cursor,
            _savepoint(getattr(cursor, "connection", self._given), cursor.execute),
        ):
            cursor.execute(_statement(query, "%s"), [_body(args)])
            return _rows(cursor.fetchall())


class _Sqlalchemy(_Adapter):
    async def _fetch(self, query: str, args: Sequence[Any]) -> Rows:
        return _fetched(self._given, query, args)


class _AsyncSqlalchemy(_Adapter):
    async def _fetch(self, query: str, args: Sequence[Any]) -> Rows:
        session = self._given() if callable(self._given) else self._given  # of a scope, its session
        rows: Rows = await session.run_sync(_fetched, query, args)
        return rows


def _fetched(given: Any, query: str, args: Sequence[Any]) -> Rows:
    """Run a statement on a connection or session of SQLAlchemy, whose own savepoints would flush and expire its objects."""
    from sqlalchemy import text

    connection = given if _is(given, "sqlalchemy", "Connection") else given.connection()
    with _savepoint(connection.connection.dbapi_connection, lambda words: connection.execute(text(words))):
        return _rows(given.execute(text(_statement(query, ":body")), {"body": _body(args)}))


@contextmanager
def _savepoint(connection: Any, execute: Callable[[str], Any]) -> Iterator[None]:
    """Undo only the block if it fails, where there is a transaction."""
    save, release, undo = _around(connection)
    for statement in save:
        execute(statement)
    try:
        yield
    except Exception:
        with suppress(Exception):  # the first error is the one to report
            for statement in undo:
                execute(statement)
        raise
    for statement in release:
        execute(statement)


def _around(connection: Any) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """Return the statements before, after, and on failure; empty where each statement commits by itself."""
    status = getattr(getattr(connection, "info", None), "transaction_status", None)
    if getattr(connection, "autocommit", False) and status != _IN_TRANSACTION:
        return (), (), ()
    return (_SAVE,), (_RELEASE,), (_UNDO, _RELEASE)


def _connection_of(given: Any) -> Any:
    """Return the connection of a cursor of psycopg, or the connection itself."""
    return getattr(given, "connection", given)


def _pipeline(connection: Any) -> Any:
    import psycopg

    return connection.pipeline() if psycopg.Pipeline.is_supported() else nullcontext()


def _statement(query: str, parameter: str) -> str:
    return _STATEMENTS[query].replace("$1", parameter)


def _body(args: Sequence[Any]) -> str:
    """Encode a statement's arguments as JSON; spans as ISO 8601, which the database reads."""
    return msgspec.json.encode(args).decode()


def _rows(rows: Any) -> Rows:
    """Return rows as the store expects them, a job's id or None first; drivers differ in the type of a UUID."""
    plain_rows = (tuple(row.values()) if isinstance(row, Mapping) else tuple(row) for row in rows)
    return [(job_id if job_id is None else UUID(str(job_id)), *others) for job_id, *others in plain_rows]


def _translated(error: Exception) -> Exception:
    """Translate another driver's error into one of ours, where we have one."""
    for cause in _causes(error):
        diagnosis = getattr(cause, "diag", None)
        state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if state in _NOT_THERE:
            said = getattr(diagnosis, "message_primary", None) or cause.args[0]
            return DatabaseUnusable(
                f"the database of this connection lacks Duly's schema: {said}. Run `duly migrate` on it"
            )
        if isinstance(cause, asyncpg.PostgresError | asyncpg.InterfaceError):
            return translated(cause)
        if diagnosis is not None and state == _DISK_FULL:
            return DiskFull(diagnosis.message_primary or str(cause))
        if diagnosis is not None and state:
            found = refusal(state, diagnosis.message_primary or str(cause), diagnosis.message_detail)
            return found or error
        if diagnosis is not None and type(cause).__name__ == "OperationalError":
            return Unavailable(f"the database did not respond: {cause}")
    return error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Iterate over a driver's error and the errors it wraps."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = getattr(seen, "orig", None) or seen.__cause__


def _is(given: Any, module: str, *names: str) -> bool:
    """Return whether `given` is of one of these classes; a module that was never imported made nothing."""
    loaded = sys.modules.get(module)
    return any(isinstance(given, kind) for name in names if isinstance(kind := getattr(loaded, name, None), type))


def _is_sqlalchemy(given: Any) -> bool:
    return _is(given, "sqlalchemy", "Connection") or _is(given, "sqlalchemy.orm", "Session", "scoped_session")


def _awaited_kind(given: Any) -> type[_Adapter] | None:
    if isinstance(given, asyncpg.Connection | PoolConnectionProxy):
        return _Asyncpg
    if _is(given, "sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession", "async_scoped_session"):
        return _AsyncSqlalchemy
    return _AsyncPsycopg if _is(given, "psycopg", "AsyncConnection", "AsyncCursor") else None


def _tuple_row() -> Any:
    from psycopg.rows import tuple_row

    return tuple_row


def _kind(given: Any) -> str:
    return f"{type(given).__module__.split('.')[0]}.{type(given).__name__}"


def _unknown(given: Any) -> InvalidOption:
    return InvalidOption(
        f"connection {_kind(given)} is not supported; use a connection of asyncpg, psycopg, SQLAlchemy or another DB-API driver"
    )
