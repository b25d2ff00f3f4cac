"""Pauses: scopes of which nothing starts. Rows beside the boxes; every claim reads them."""

from __future__ import annotations

from duly.domain.limits.pause import Pause, Scope
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/pauses")


async def pause_scope(database: Database, scope: Scope, reason: str, paused_by: str) -> str:
    """Pause a scope: held, already, or full when there is no room for another pause."""
    return str(
        await database.fetchval(SQL["pause_scope"], scope.tenant, scope.queue, reason, paused_by, scope.rows_max)
    )


async def resume_scope(database: Database, scope: Scope) -> bool:
    """Remove the pause of this very scope. False: there was none."""
    return bool(await database.fetch(SQL["resume_scope"], scope.tenant, scope.queue))


async def standing(database: Database) -> list[Pause]:
    """Read every pause, the oldest first."""
    return [Pause(Scope(*row[:2]), *row[2:]) for row in await database.fetch(SQL["standing"])]
