"""Limits of runs at once. Rows beside the boxes; a claim under one locks it and counts."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from duly.domain.limits.limit import OPERATOR, Limit
from duly.domain.limits.pause import Scope
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/limits")


async def put(database: Database, scope: Scope, slots: int, set_by: str, *, is_operator: bool) -> bool:
    """Set the limit of this very scope. False: there is no room for another one, or the operator has set it."""
    requested = scope.tenant, scope.queue, slots, set_by, scope.rows_max, is_operator, OPERATOR
    return bool(await database.fetch(SQL["put"], *requested))


async def remove(database: Database, scope: Scope, *, is_operator: bool) -> bool:
    """Remove the limit of this very scope. False: there was none, or the operator has set it."""
    return bool(await database.fetch(SQL["remove"], scope.tenant, scope.queue, is_operator, OPERATOR))


async def find(database: Database, scope: Scope) -> Limit | None:
    """Read the limit of this very scope, and how many runs are under way."""
    return await database.fetch_row_with(_limit, SQL["find"], scope.tenant, scope.queue)


async def standing(database: Database) -> Sequence[Limit]:
    """Read every limit, the widest first, and how many runs of each are under way."""
    return [_limit(row) for row in await database.fetch(SQL["standing"])]


def _limit(row: asyncpg.Record) -> Limit:
    return Limit(Scope(row["tenant"], row["queue"]), row["slots"], row["running"], row["set_by"], row["set_at"])
