"""Migrations that take long and let others go on: indexes that are built concurrently, and changes of data in batches.

Such a file begins with `-- concurrently`. Its statements run one by one, each as a transaction of its own. Each may be
run again: an index that exists is left, one that a broken build left behind is built anew, and a change of data is
repeated until it changes nothing, so it has a limit.
"""

from __future__ import annotations

import re

from duly.store.connection.database import Database
from duly.store.connection.statements import load
from duly.store.schema.locks import without_queue
from duly.store.schema.steps import statements

SQL = load("schema/concurrent")
_HEAD = "-- concurrently"
_INDEX = re.compile(r"create (?:unique )?index concurrently (?:if not exists )?(\w+)", re.IGNORECASE)
_CONCURRENT = re.compile(r"^\w+ (?:unique )?index concurrently\b", re.IGNORECASE)
_CHANGED = re.compile(r"(?:UPDATE|DELETE|INSERT 0) (\d+)")
_REST_SECONDS = 1.0


def is_concurrent(sql: str) -> bool:
    """Return whether a migration runs beside others, and outside of any transaction."""
    return sql.startswith(_HEAD)


def as_plain(sql: str) -> str:
    """Return the same for an empty database, where it can be a part of one transaction."""
    return re.sub(r"\bindex concurrently\b", "index", sql, flags=re.IGNORECASE) if is_concurrent(sql) else sql


async def carry_out(database: Database, sql: str) -> None:
    """Run the statements of a migration, each until it is done."""
    for statement in statements(sql):
        found = _INDEX.match(statement)
        if found is None:
            await _repeat(database, statement)
        else:
            await _build(database, found[1], statement)


async def _build(database: Database, index: str, statement: str) -> None:
    """Build an index, unless it is there; wait for one that somebody else builds."""
    while True:
        row = await database.fetchrow(SQL["index"], index)
        if row is None:
            await _run(database, statement)
        elif row["is_valid"]:
            return
        elif row["is_being_built"]:
            await database.clock.sleep(_REST_SECONDS)
        else:
            await _run(database, f"drop index concurrently duly.{index}")


async def _repeat(database: Database, statement: str) -> None:
    """Run a statement again until it changes nothing."""
    changed = 1
    while changed:
        status = await _run(database, statement)
        found = _CHANGED.fullmatch(status)
        changed = 0 if found is None else int(found[1])


async def _run(database: Database, statement: str) -> str:
    """Run a statement, and return its status. One that is concurrent waits as PostgreSQL does, in nobody's way."""
    if _CONCURRENT.search(statement) is None:
        return await without_queue(database, statement)
    async with database.pool.acquire() as connection:
        status: str = await connection.execute(statement)
        return status
