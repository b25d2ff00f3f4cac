"""Changes of definitions and workflows as they happen: each once, whenever its transaction ends.

The ends of workflows are in `workflow_ends`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Generic, TypeVar
from uuid import UUID

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load

OF_JOBS, OF_WORKFLOWS = load("reads/job_changes"), load("reads/workflow_changes")
ROWS_MAX = 5_000

T = TypeVar("T")


class JobChange(msgspec.Struct, frozen=True):
    """A job that was created, edited, paused, resumed, completed or cancelled. `number` tells changes of a job apart."""

    job_id: UUID
    tenant: int
    version: int
    change: str
    name: str | None
    queue: str
    handler: str
    changed_at: datetime
    number: int


class WorkflowChange(msgspec.Struct, frozen=True):
    """A workflow that was paused, resumed, replayed, or is being cancelled. `number` tells changes of one apart."""

    workflow_id: UUID
    tenant: int
    change: str
    name: str
    replays: int
    changed_at: datetime
    number: int


class Changes(Generic[T]):
    """Reads from one table what the last look could not see. `left_out` says whether there was more than it returned."""

    def __init__(self, database: Database, statements: Mapping[str, str], shape: Callable[..., T]) -> None:
        self._database = database
        self._statements = statements
        self._shape = shape
        self._seen: str | None = None
        self.left_out = False

    async def look(self, tenants: Iterable[int]) -> list[T]:
        """Return the changes since the last look, `ROWS_MAX` at most; the first look only sets the position."""
        if self._seen is None:
            self._seen = str(await self._database.fetchval(self._statements["position"]))
            return []
        rows = await self._database.fetch(self._statements["look"], self._seen, list(tenants), ROWS_MAX + 1)
        self._seen = rows[0]["snapshot"]
        self.left_out = len(rows) > ROWS_MAX
        return [self._shape(*row[1:]) for row in rows[:ROWS_MAX] if row[1] is not None]

    async def recent(self, tenant: int, since: datetime, limit: int) -> list[T]:
        """Read the changes of a tenant since a moment, in order."""
        rows = await self._database.fetch(self._statements["recent"], tenant, since, limit)
        return [self._shape(*row) for row in rows]


def job_changes(database: Database) -> Changes[JobChange]:
    """Return a reader of changes to definitions."""
    return Changes(database, OF_JOBS, JobChange)


def workflow_changes(database: Database) -> Changes[WorkflowChange]:
    """Return a reader of changes to workflows."""
    return Changes(database, OF_WORKFLOWS, WorkflowChange)
