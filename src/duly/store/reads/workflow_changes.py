"""What is done to workflows, as it is done: each change once, whenever its transaction ends. Their ends are `workflow_ends`."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load
from duly.store.reads.changes import Changes

SQL = load("reads/workflow_changes")


class WorkflowChange(msgspec.Struct, frozen=True):
    """A workflow that was paused, resumed, replayed, or is being cancelled. `number` tells changes of one apart."""

    workflow_id: UUID
    tenant: int
    change: str
    name: str
    replays: int
    changed_at: datetime
    number: int


def changes(database: Database) -> Changes[WorkflowChange]:
    """Begin to read them as they come."""
    return Changes(database, SQL, WorkflowChange)


async def recent(database: Database, tenant: int, since: datetime, limit: int) -> list[WorkflowChange]:
    """Read what was done to workflows of a tenant since a moment, in order."""
    return [WorkflowChange(*row) for row in await database.fetch(SQL["recent"], tenant, since, limit)]
