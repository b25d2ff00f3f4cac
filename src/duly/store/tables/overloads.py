"""Overloads: the tenants whose oldest due run in a queue is older than its limit, and the limits."""

from __future__ import annotations

from datetime import timedelta

from duly.domain.limits.overload import AGE_LIMIT, Overload
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/overloads")
SUBQUEUES_MAX = 2_000  # oldest runs that one look reads


async def record(database: Database, default: timedelta = AGE_LIMIT) -> int | None:
    """Record which tenants are overloaded in which queue. Returns how many are; None: another process just recorded it."""
    count: int | None = await database.fetchval(SQL["record"], default, SUBQUEUES_MAX)
    return count


async def standing(database: Database) -> dict[tuple[int, str], Overload]:
    """Read the overloads, by tenant and queue."""
    return {(row[0], row[1]): Overload(*row) for row in await database.fetch(SQL["standing"])}


async def oldest(database: Database, limit: int) -> list[Overload]:
    """Read the overloads whose oldest run has waited longest."""
    return sorted((await standing(database)).values(), key=lambda one: -one.age)[:limit]


async def limits(database: Database) -> dict[str, timedelta]:
    """Read the age limits that are set."""
    return {row[0]: row[1] for row in await database.fetch(SQL["limits"])}


async def limit(database: Database, queue: str, age_limit: timedelta, set_by: str) -> None:
    """Set the maximum age of the oldest due run of a queue."""
    await database.execute(SQL["limit"], queue, age_limit, set_by)


async def unlimit(database: Database, queue: str) -> bool:
    """Restore the default of a queue. False: it had no limit of its own."""
    return bool(await database.fetch(SQL["unlimit"], queue))
