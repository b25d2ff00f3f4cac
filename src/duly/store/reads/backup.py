"""Facts for backups: a snapshot that a dump can share, what it holds, and whether a database may be restored into."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from importlib.resources import files

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load
from duly.store.schema.locks import LOCK

SQL = load("reads/backup")
_SECONDS_MAX = 86_400.0
_BEGIN = """
begin isolation level repeatable read read only;
set local idle_in_transaction_session_timeout = 0; set local statement_timeout = 0
"""


class Snapshot(msgspec.Struct, frozen=True):
    """A moment of the database, which a dump can share while it is held, and the rows of each table at that moment."""

    name: str
    taken_at: datetime
    server: str
    schema_version: int
    edition: int
    rows: dict[str, int]


class Target(msgspec.Struct, frozen=True):
    """A database to restore into: whether it is empty, and the processes that use it."""

    name: str
    server: str
    major: int
    has_schema: bool
    processes: list[str]


@asynccontextmanager
async def snapshot(database: Database) -> AsyncIterator[Snapshot]:
    """Hold a snapshot, and give what it shows."""
    beside = database.beside(1, command_timeout=_SECONDS_MAX)
    try:
        async with beside.pool.acquire() as connection:
            await connection.execute(_BEGIN)
            [facts] = await connection.fetch(SQL["facts"])
            tables = await connection.fetch(SQL["counting"])
            rows = {table["name"]: int(await connection.fetchval(table["statement"])) for table in tables}
            yield Snapshot(**{**facts, "rows": rows})
            await connection.execute("rollback")
    finally:
        await beside.close()


async def target(database: Database) -> Target:
    """Look at a database that is to be restored into; it needs no schema."""
    found = await database.fetch_one(SQL["target"])
    processes = [row[0] for row in await database.fetch(SQL["sessions"])]
    if found["has_tables"]:
        processes += [row[0] for row in await database.fetch(SQL["processes"])]
    return Target(found["name"], found["server"], found["major"], found["has_schema"], processes)


async def last_moment(database: Database) -> datetime:
    """Return the last moment that the clock of the database had, before it was restored by other means."""
    found: datetime = await database.fetchval(SQL["last_moment"])
    return found


def before_loading(*, replaces: bool) -> str:
    """Return the SQL that precedes a dump, in its transaction: nobody migrates meanwhile, and the API's role exists."""
    role = files("duly.store.schema").joinpath("role.sql").read_text(encoding="utf-8")
    drop = "set local client_min_messages = warning; drop schema if exists duly cascade;" if replaces else ""
    return f"{LOCK};\n{drop}\n{role}"


def after_loading(backup_at: datetime) -> str:
    """Return the SQL that follows a dump, in its transaction: nothing of it may start before it is held."""
    return f"select duly.hold_restored('{backup_at.isoformat()}'::timestamptz);"
