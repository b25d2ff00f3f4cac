"""Dependencies of one-shots: those that no ending run has checked."""

from __future__ import annotations

from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/dependencies")


async def check(database: Database, limit: int) -> int:
    """Check runs with dependencies, up to a limit. Returns how many were checked."""
    return int(await database.fetchval(SQL["check"], limit))
