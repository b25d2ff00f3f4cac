"""Ends of workflows, as they come: each once, read from the workflows themselves, so that nobody pays for a note of them.

Rows become visible in another order than they end, so looks overlap, and of these one gives what the snapshot of the look
before could not see. Missed is only what was committed later after its end than the overlap is long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.store.database import Database
from duly.store.statements import load
from duly.store.tail import OVERLAP_SECONDS, Snapshot

SQL = load("workflow_ends")
ROWS_MAX = 5_000
_OVERLAP = timedelta(seconds=OVERLAP_SECONDS)


class WorkflowEnd(msgspec.Struct, frozen=True):
    """A workflow that has come to its end; after a replay it may come to another."""

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


class WorkflowEnds:
    """Reads what has ended since the last look."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: tuple[Snapshot, datetime] | None = None
        self.left_out = False  # whether there may have been more than the last look gave

    async def look(self, tenants: Iterable[int]) -> list[WorkflowEnd]:
        """Give what ended since the last look, `ROWS_MAX` at most; the first look only takes its place."""
        if self._seen is None:
            self._note(await self._database.fetch(SQL["place"]))
            return []
        snapshot, read_at = self._seen
        arguments = (*snapshot.arguments(), read_at - _OVERLAP, list(tenants), ROWS_MAX)
        rows = await self._database.fetch(SQL["look"], *arguments)
        self._note(rows)
        self.left_out = len(rows) >= ROWS_MAX
        return [WorkflowEnd(*row[2:]) for row in rows if row["workflow_id"] is not None]

    def _note(self, rows: Sequence[Any]) -> None:
        self._seen = Snapshot.parse(rows[0]["snapshot"]), rows[0]["read_at"]


async def recent(database: Database, tenant: int, since: datetime, limit: int) -> list[WorkflowEnd]:
    """Read which workflows of a tenant have ended since a moment, in order."""
    return [WorkflowEnd(*row) for row in await database.fetch(SQL["recent"], tenant, since, limit)]
