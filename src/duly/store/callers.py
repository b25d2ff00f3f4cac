"""Callers' own connections: a submit inside their transaction, whatever driver they use.

A caller may hand us a connection of asyncpg, of psycopg, of SQLAlchemy (a session too), or any DB-API one, such as
Django's. Each gets the shape the moves expect. A plain one answers at once: its `fetch` never suspends, so `at_once` can
drive a move on it without a loop. We begin, commit and roll back nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import msgspec
from asyncpg.pool import PoolConnectionProxy

from duly.domain.errors import InvalidOption
from duly.store import jobs
from duly.store.database import Connection, DiskFull, Unavailable, translated
from duly.store.refusals import refusal
from duly.store.statements import load

SQL = load("callers")
_STATEMENTS = {jobs.SQL[name]: text for name, text in SQL.items()}
_DISK_FULL = "53100"
_Answer = TypeVar("_Answer")
Rows = list[tuple[Any, ...]]


def plain(given: Any) -> Connection:
    """Adapt a caller's plain connection, cursor or session. Raises InvalidOption when it is none."""
    if _is_sqlalchemy(given):
        return _Sqlalchemy(given)
    if _is(given, "psycopg", "Connection", "Cursor"):
        return _Psycopg(getattr(given, "connection", given))
    if _is_awaited(given):
        raise InvalidOption(f"{_kind(given)} is awaited: use `await ….submit(…)` with it, not submit_sync")
    if callable(getattr(given, "cursor", None)):
        return _DbApi(given)
    raise _unknown(given)


def awaited(given: Any) -> Connection:
    """Adapt a caller's awaited connection, cursor or session. Raises InvalidOption when it is none."""
    if isinstance(given, asyncpg.Connection | PoolConnectionProxy):
        return _Asyncpg(given)
    if _is(given, "sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession", "async_scoped_session"):
        return _AsyncSqlalchemy(given)
    if _is(given, "psycopg", "AsyncConnection", "AsyncCursor"):
        return _AsyncPsycopg(getattr(given, "connection", given))
    if _is_sqlalchemy(given) or callable(getattr(given, "cursor", None)):
        raise InvalidOption(f"{_kind(given)} is not awaited: use submit_sync with it")
    raise _unknown(given)


def at_once(move: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Drive a move on a plain connection to its end, without a loop."""
    try:
        move.send(None)
    except StopIteration as done:
        answer: _Answer = done.value
        return answer
    move.close()
    raise AssertionError("a move on a plain connection waited for something")


class _Asyncpg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, query: str, *args: Any) -> Sequence[Any]:
        try:
            rows: Sequence[Any] = await self._connection.fetch(query, *args)
        except Exception as error:
            raise translated(error) from error
        return rows


class _AsyncPsycopg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, query: str, *args: Any) -> Rows:
        try:
            async with self._connection.cursor(row_factory=_tuple_row()) as cursor:
                await cursor.execute(_statement(query, "%s"), [_body(args)])
                return _rows(await cursor.fetchall())
        except Exception as error:
            raise _translated(error) from error


class _Psycopg:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, query: str, *args: Any) -> Rows:
        try:
            with self._connection.cursor(row_factory=_tuple_row()) as cursor:
                cursor.execute(_statement(query, "%s"), [_body(args)])
                return _rows(cursor.fetchall())
        except Exception as error:
            raise _translated(error) from error


class _DbApi:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, query: str, *args: Any) -> Rows:
        try:
            with closing(self._connection.cursor()) as cursor:
                cursor.execute(_statement(query, "%s"), [_body(args)])
                return _rows(cursor.fetchall())
        except Exception as error:
            raise _translated(error) from error


class _Sqlalchemy:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, query: str, *args: Any) -> Rows:
        from sqlalchemy import text

        try:
            return _rows(self._connection.execute(text(_statement(query, ":body")), {"body": _body(args)}))
        except Exception as error:
            raise _translated(error) from error


class _AsyncSqlalchemy:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetch(self, query: str, *args: Any) -> Rows:
        from sqlalchemy import text

        try:
            return _rows(await self._connection.execute(text(_statement(query, ":body")), {"body": _body(args)}))
        except Exception as error:
            raise _translated(error) from error


def _statement(query: str, parameter: str) -> str:
    return _STATEMENTS[query].replace("$1", parameter)


def _body(args: Sequence[Any]) -> str:
    """Write a statement's arguments as JSON; spans as ISO 8601, which the database reads."""
    return msgspec.json.encode(args).decode()


def _rows(rows: Any) -> Rows:
    """Give rows as the store expects them, a job, or none, first; drivers differ in what a UUID is."""
    plain_rows = (tuple(row.values()) if isinstance(row, Mapping) else tuple(row) for row in rows)
    return [(job_id if job_id is None else UUID(str(job_id)), *others) for job_id, *others in plain_rows]


def _translated(error: Exception) -> Exception:
    """Turn another driver's error into one of ours, where we have one."""
    for cause in _causes(error):
        if isinstance(cause, asyncpg.PostgresError | asyncpg.InterfaceError):
            return translated(cause)
        diagnosis = getattr(cause, "diag", None)
        state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if diagnosis is not None and state == _DISK_FULL:
            return DiskFull(diagnosis.message_primary or str(cause))
        if diagnosis is not None and state:
            found = refusal(state, diagnosis.message_primary or str(cause), diagnosis.message_detail)
            return found or error
        if diagnosis is not None and type(cause).__name__ == "OperationalError":
            return Unavailable(f"the database did not answer: {cause}")
    return error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Walk from a driver's error to what it wraps."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = getattr(seen, "orig", None) or seen.__cause__


def _is(given: Any, module: str, *names: str) -> bool:
    """Say whether `given` is of one of these classes; a module that was never imported made nothing."""
    loaded = sys.modules.get(module)
    return any(isinstance(given, kind) for name in names if isinstance(kind := getattr(loaded, name, None), type))


def _is_sqlalchemy(given: Any) -> bool:
    return _is(given, "sqlalchemy", "Connection") or _is(given, "sqlalchemy.orm", "Session", "scoped_session")


def _is_awaited(given: Any) -> bool:
    return (
        isinstance(given, asyncpg.Connection | PoolConnectionProxy)
        or _is(given, "sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession", "async_scoped_session")
        or _is(given, "psycopg", "AsyncConnection", "AsyncCursor")
    )


def _tuple_row() -> Any:
    from psycopg.rows import tuple_row

    return tuple_row


def _kind(given: Any) -> str:
    return f"{type(given).__module__.split('.')[0]}.{type(given).__name__}"


def _unknown(given: Any) -> InvalidOption:
    return InvalidOption(
        f"connection {_kind(given)} is no connection we know; give one of asyncpg, psycopg or SQLAlchemy, or a DB-API one"
    )
