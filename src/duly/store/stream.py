"""What happens to runs, as it happens: those that start and those that end, each once, at a cost that follows what is new.

Ends are read from the end of history, as the metrics read them (see `tail`). Starts are read from the box of what workers hold:
a run is said to have started when it is in a worker's hands and due.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from duly.store.database import Database
from duly.store.statements import load
from duly.store.tail import OVERLAP_SECONDS, Growth, Snapshot

SQL = load("stream")
ROWS_MAX = 5_000
_BLOCKS_MAX = 256  # of each leaf, looked back at


class Started(msgspec.Struct, frozen=True):
    """A run that has begun."""

    run_id: UUID
    job_id: UUID
    tenant: int
    attempt: int
    fence: int
    queue: str
    handler: str
    scheduled_at: datetime
    due_at: datetime
    started_at: datetime


class Ended(msgspec.Struct, frozen=True):
    """An attempt that came to its end, or an occurrence that was left out."""

    run_id: UUID
    job_id: UUID
    tenant: int
    attempt: int
    fence: int | None
    outcome: str
    became: str
    queue: str
    handler: str
    scheduled_at: datetime
    due_at: datetime
    started_at: datetime | None
    finished_at: datetime
    reason: str | None


class Endings(Growth):
    """Reads history from where the last look ended, row by row. `left_out`: there may have been more than the last look gave."""

    left_out = False

    async def look(self, tenants: Iterable[int]) -> list[Ended]:
        """Give what ended since the last look, `ROWS_MAX` at most; the first look only takes its place."""
        leaves = await self._leaves()
        if self._snapshot is None:
            await self._take_place()
            return []
        if not leaves:
            return []
        arguments = (*self._snapshot.arguments(), list(tenants), ROWS_MAX, *self._floors(leaves))
        try:
            rows = await self._database.fetch(_statement(leaves), *arguments)
        except asyncpg.UndefinedTableError:
            return []  # A partition was dropped between the two statements: the next look sees it.
        self._snapshot = Snapshot.parse(rows[0]["snapshot"])
        self.left_out = len(rows) >= ROWS_MAX
        return [Ended(*row[1:]) for row in rows if row["run_id"] is not None]


class Beginnings:
    """Reads what has begun since the last look. Fences become visible in another order than they rise, so looks overlap."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._places: deque[tuple[float, int, datetime]] = deque()
        self._known: dict[tuple[UUID, int], float] = {}  # All runs of a claim have one fence.
        self.left_out = False  # whether there may have been more than the last look gave

    async def look(self, tenants: Iterable[int]) -> list[Started]:
        """Give what began since the last look, `ROWS_MAX` at most; the first look only takes its place."""
        if not self._places:
            row = await self._database.fetchrow(SQL["place"])
            assert row is not None
            self._places.append((self._database.clock.monotonic(), row["fence"], row["read_at"]))
            return []
        _, fence, since = self._places[0]
        rows = await self._database.fetch(SQL["started"], list(tenants), fence, since, ROWS_MAX)
        return self._new(rows)

    def has_told(self, run_id: UUID, fence: int) -> bool:
        """Say whether the run under this fence was given already."""
        return (run_id, fence) in self._known

    def tell(self, run_id: UUID, fence: int) -> None:
        """Remember that the start of a run is known."""
        self._known[run_id, fence] = self._database.clock.monotonic()

    def _new(self, rows: Sequence[Any]) -> list[Started]:
        found = [Started(*row[:10]) for row in rows if not self.has_told(row["run_id"], row["fence"])]
        self.left_out = len(found) >= ROWS_MAX
        for one in found:
            self.tell(one.run_id, one.fence)
        if rows:
            self._move_on(max(row["fence"] for row in rows), rows[0]["read_at"])
        return found

    def _move_on(self, fence: int, read_at: datetime) -> None:
        """Note how far we have read, and forget what no look goes back to."""
        now = self._database.clock.monotonic()
        self._places.append((now, max(fence, self._places[-1][1]), read_at))
        while len(self._places) > 1 and now - self._places[1][0] >= OVERLAP_SECONDS:
            self._places.popleft()
        self._known = {known: at for known, at in self._known.items() if now - at < 3 * OVERLAP_SECONDS}


async def recent(database: Database, tenant: int, since: datetime, limit: int) -> tuple[list[Ended], bool]:
    """Read what ended of a tenant since a moment, in order, and whether that is all: only so far back is looked."""
    found: list[Ended] = []
    is_all = True
    for name, blocks in await Growth(database).sizes():
        floor = max(0, blocks - _BLOCKS_MAX)
        statement = SQL["recent"].format(leaf=name)
        rows = await database.fetch(statement, (floor, 0), tenant, since, limit + 1)
        found += [Ended(*row) for row in rows]
        if floor:
            first = await database.fetchval(SQL["first_of_block"].format(leaf=name), (floor, 0), (floor + 1, 0))
            is_all = is_all and first is not None and first < since
    found.sort(key=lambda one: one.finished_at)
    return found[:limit], is_all and len(found) <= limit


def _statement(leaves: Sequence[str]) -> str:
    unseen = " union all ".join(SQL["unseen"].format(leaf=leaf, number=number) for number, leaf in enumerate(leaves, 6))
    return SQL["look"].format(unseen=unseen)
