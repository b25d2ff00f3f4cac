# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""Backfills under way."""

from __future__ import annotations

from collections.abc import Iterator

from duly.client.paging import listing
from duly.client.requests import Id, deleting, getting, path
from duly.client.synchronous.transport import Line
from duly.wire.jobs.verbs import BackfillCancelled, BackfillStatus


class Backfills:
    """Past occurrences that are made again."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def list(self, job_id: Id | None = None, *, page_size: int | None = None) -> Iterator[BackfillStatus]:
        """Give the backfills of a job, or all, the last asked for first; pages are read as they are needed."""
        return self._line.pages(listing(path("backfills"), BackfillStatus, job_id=job_id, page_size=page_size))

    def get(self, backfill_id: Id) -> BackfillStatus:
        """Say how far a backfill has come. Raises NotFound."""
        return self._line.ask(getting(path("backfills", backfill_id), BackfillStatus))

    def cancel(self, backfill_id: Id) -> BackfillCancelled:
        """Stop a backfill; its runs that have not begun are taken back. Raises NotFound."""
        return self._line.ask(deleting(path("backfills", backfill_id), BackfillCancelled))
