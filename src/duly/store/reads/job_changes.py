"""What is done to definitions of jobs, as it is done: each change once, whenever its transaction ends."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load
from duly.store.reads.changes import Changes

SQL = load("reads/job_changes")


class Change(msgspec.Struct, frozen=True):
    """A job that was made, edited, paused, resumed, completed or cancelled. `number` tells changes of a job apart."""

    job_id: UUID
    tenant: int
    version: int
    change: str
    name: str | None
    queue: str
    handler: str
    changed_at: datetime
    number: int


def changes(database: Database) -> Changes[Change]:
    """Begin to read them as they come."""
    return Changes(database, SQL, Change)


async def recent(database: Database, tenant: int, since: datetime, limit: int) -> list[Change]:
    """Read what changed of a tenant since a moment, in order."""
    return [Change(*row) for row in await database.fetch(SQL["recent"], tenant, since, limit)]
