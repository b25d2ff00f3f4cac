"""Backfills under way."""

from __future__ import annotations

from duly.client.asking import Id, deleting, getting, path
from duly.client.asynchronous.line import AsyncLine
from duly.wire.verbs import BackfillCancelled, BackfillStatus


class AsyncBackfills:
    """Past occurrences that are made again."""

    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def get(self, backfill_id: Id) -> BackfillStatus:
        """Say how far a backfill has come. Raises NotFound."""
        return await self._line.ask(getting(path("backfills", backfill_id), BackfillStatus))

    async def cancel(self, backfill_id: Id) -> BackfillCancelled:
        """Stop a backfill; its runs that have not begun are taken back. Raises NotFound."""
        return await self._line.ask(deleting(path("backfills", backfill_id), BackfillCancelled))
