"""Pauses: scopes of which nothing starts. Rows beside the boxes; every claim reads them."""

from __future__ import annotations

from duly.domain.limits.pause import Hold, Scope
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/pauses")


async def hold(database: Database, scope: Scope, reason: str, held_by: str) -> str:
    """Pause a scope: held, already, or full when there is no room for another pause."""
    return str(await database.fetchval(SQL["hold"], scope.tenant, scope.queue, reason, held_by, scope.rows_max))


async def lift(database: Database, scope: Scope) -> bool:
    """Remove the pause of this very scope. False: there was none."""
    return bool(await database.fetch(SQL["lift"], scope.tenant, scope.queue))


async def standing(database: Database) -> list[Hold]:
    """Read every pause, the oldest first."""
    return [Hold(Scope(*row[:2]), *row[2:]) for row in await database.fetch(SQL["standing"])]
