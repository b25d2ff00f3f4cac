"""What is done to workflows, as it is done: each change once, whenever its transaction ends. Their ends are `workflow_ends`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.store.database import Database
from duly.store.statements import load

SQL = load("workflow_changes")
ROWS_MAX = 5_000


class WorkflowChange(msgspec.Struct, frozen=True):
    """A workflow that was paused, resumed, replayed, or is being cancelled. `number` tells changes of one apart."""

    workflow_id: UUID
    tenant: int
    change: str
    name: str
    replays: int
    changed_at: datetime
    number: int


class WorkflowChanges:
    """Reads what the last look could not see."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: str | None = None

    async def look(self, tenants: Iterable[int]) -> list[WorkflowChange]:
        """Give what changed since the last look, `ROWS_MAX` at most; the first look only takes its place."""
        if self._seen is None:
            self._seen = str(await self._database.fetchval(SQL["place"]))
            return []
        rows = await self._database.fetch(SQL["look"], self._seen, list(tenants), ROWS_MAX)
        self._seen = rows[0]["snapshot"]
        return [WorkflowChange(*row[1:]) for row in rows if row["workflow_id"] is not None]


async def recent(database: Database, tenant: int, since: datetime, limit: int) -> list[WorkflowChange]:
    """Read what was done to workflows of a tenant since a moment, in order."""
    return [WorkflowChange(*row) for row in await database.fetch(SQL["recent"], tenant, since, limit)]


async def forget(database: Database, kept: timedelta, limit: int) -> None:
    """Forget changes that nobody can ask for any more."""
    await database.execute(SQL["forget"], kept, limit)
