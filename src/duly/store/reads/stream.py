"""Starts and ends of runs as they happen: each once, at a cost that depends only on what is new.

Ends are read from the tail of history, as the metrics read them (see `tail`). Starts are read from `leased`: a run
counts as started when it is leased and due.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load
from duly.store.reads.tail import OVERLAP_SECONDS, Dependent, Snapshot

SQL = load("reads/stream")
ROWS_MAX = 5_000
SCAN_MAX = 50_000  # of all tenants; a look that finds more leaves a gap


class Started(msgspec.Struct, frozen=True):
    """A run that has started."""

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
    """An attempt that ended, or an occurrence that was skipped."""

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


class Endings(Dependent):
    """Reads history from where the last look ended, row by row.

    `left_out`: there may have been more than the last look returned.
    """

    left_out = False

    async def look(self, tenants: Iterable[int]) -> list[Ended]:
        """Return what ended since the last look, `ROWS_MAX` at most; the first look only sets the position."""
        if self._position is None:
            await self._take_position()
            return []
        end, still_open = self._position.arguments()
        rows = await self._database.fetch(SQL["look"], end, still_open, SCAN_MAX, list(tenants), ROWS_MAX)
        found = [Ended(*row[4:]) for row in rows if row["run_id"] is not None]
        has_moved_on = self._has_moved_on(rows[0], rows[0]["newest"] or 0)
        self.left_out = not has_moved_on or rows[0]["scanned"] >= SCAN_MAX or len(found) >= ROWS_MAX
        if self.left_out:  # a reader that learns of a gap goes on from here
            await self._take_position()
        return found if has_moved_on else []


class Beginnings:
    """Reads what has started since the last look: leased since and due, or due since.

    A lease keeps its fence for life and may be rewritten under it, so only fences of the last seconds are new. They
    become visible out of order, so the last seconds overlap, and a look returns of these what the last one could not
    see.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._fences: deque[tuple[float, int]] = deque()
        self._seen: tuple[Snapshot, datetime] | None = None
        self._known: dict[tuple[UUID, int], float] = {}  # all runs of a claim have one fence
        self.left_out = False  # whether there may have been more than the last look returned

    async def look(self, tenants: Iterable[int]) -> list[Started]:
        """Return what started since the last look, `ROWS_MAX` at most; the first look only sets the position."""
        if self._seen is None:
            self._move_on(await self._database.fetch(SQL["position"]))
            return []
        snapshot, read_at = self._seen
        arguments = (*snapshot.arguments(), list(tenants), self._fences[0][1], read_at, ROWS_MAX)
        rows = await self._database.fetch(SQL["started"], *arguments)
        self._move_on(rows)
        begun = [Started(*row[2:]) for row in rows if row["run_id"] is not None]
        self.left_out = len(begun) >= ROWS_MAX
        found = [one for one in begun if not self.was_returned(one.run_id, one.fence)]
        for one in found:
            self.mark_returned(one.run_id, one.fence)
        return found

    def was_returned(self, run_id: UUID, fence: int) -> bool:
        """Return whether the run under this fence was returned already."""
        return (run_id, fence) in self._known

    def mark_returned(self, run_id: UUID, fence: int) -> None:
        """Remember that the start of a run was returned."""
        self._known[run_id, fence] = self._database.clock.monotonic()

    def _move_on(self, rows: Sequence[Any]) -> None:
        """Advance the position, and forget what no look goes back to."""
        now = self._database.clock.monotonic()
        self._seen = Snapshot.parse(rows[0]["snapshot"]), rows[0]["read_at"]
        before = self._fences[-1][1] if self._fences else 0
        self._fences.append((now, max(before, *(row["fence"] or 0 for row in rows))))
        while len(self._fences) > 1 and now - self._fences[1][0] >= OVERLAP_SECONDS:
            self._fences.popleft()
        self._known = {known: at for known, at in self._known.items() if now - at < 3 * OVERLAP_SECONDS}
