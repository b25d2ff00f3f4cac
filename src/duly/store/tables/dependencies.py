"""One-shots that follow others: what is left to look at outside of anybody's end."""

from __future__ import annotations

from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/dependencies")


async def check(database: Database, limit: int) -> int:
    """Look at runs that follow others, up to a limit. Returns how many were looked at."""
    return int(await database.fetchval(SQL["check"], limit))
