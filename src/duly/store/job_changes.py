"""What is done to definitions of jobs, as it is done: each change once, whenever its transaction ends."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.store.database import Database
from duly.store.statements import load

SQL = load("job_changes")
ROWS_MAX = 5_000


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


class Changes:
    """Reads what the last look could not see."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: str | None = None

    async def look(self, tenants: Iterable[int]) -> list[Change]:
        """Give what changed since the last look, `ROWS_MAX` at most; the first look only takes its place."""
        if self._seen is None:
            self._seen = str(await self._database.fetchval(SQL["place"]))
            return []
        rows = await self._database.fetch(SQL["look"], self._seen, list(tenants), ROWS_MAX)
        self._seen = rows[0]["snapshot"]
        return [Change(*row[1:]) for row in rows if row["job_id"] is not None]


async def recent(database: Database, tenant: int, since: datetime, limit: int) -> list[Change]:
    """Read what changed of a tenant since a moment, in order."""
    return [Change(*row) for row in await database.fetch(SQL["recent"], tenant, since, limit)]


async def forget(database: Database, kept: timedelta, limit: int) -> None:
    """Forget changes that nobody can ask for any more."""
    await database.execute(SQL["forget"], kept, limit)
