"""Ends of workflows as they happen: each once, read from the workflows in the order of transactions (see `tail`)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load
from duly.store.reads.tail import Dependent

SQL = load("reads/workflow_ends")
ROWS_MAX = 5_000


class WorkflowEnd(msgspec.Struct, frozen=True):
    """A workflow that has ended; after a replay it may end again."""

    workflow_id: UUID
    tenant: int
    name: str
    state: str
    reason: str | None
    tags: list[str]
    nodes: int
    replays: int
    run_id: UUID | None
    submitted_at: datetime
    ended_at: datetime


class WorkflowEnds(Dependent):
    """Reads what has ended since the last look. `left_out`: there may have been more than the last look returned."""

    left_out = False

    async def look(self, tenants: Iterable[int]) -> list[WorkflowEnd]:
        """Return what ended since the last look, of at most `ROWS_MAX` of all tenants; the first look only sets the
        position.
        """
        if self._position is None:
            await self._take_position()
            return []
        rows = await self._database.fetch(SQL["look"], *self._position.arguments(), ROWS_MAX, list(tenants))
        has_moved_on = self._has_moved_on(rows[0], rows[0]["newest"] or 0)
        self.left_out = not has_moved_on or rows[0]["scanned"] >= ROWS_MAX
        if self.left_out:  # a reader that learns of a gap goes on from here
            await self._take_position()
        return [WorkflowEnd(*row[4:]) for row in rows if row["workflow_id"] is not None] if has_moved_on else []


async def recent(database: Database, tenant: int, since: datetime, limit: int) -> list[WorkflowEnd]:
    """Read the workflows of a tenant that have ended since a moment, in order."""
    return [WorkflowEnd(*row) for row in await database.fetch(SQL["recent"], tenant, since, limit)]
