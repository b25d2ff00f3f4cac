# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""Calendars, files of schedules, and backfills."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from duly.client.requests import Id, deleting, getting, listing, path, putting, removing
from duly.client.synchronous.transport import Resource
from duly.wire.calendars import Calendar, SavedCalendar
from duly.wire.jobs.manifests import FileJob, FileSummary
from duly.wire.jobs.verbs import BackfillCancelled, BackfillStatus


class Calendars(Resource):
    """Calendars, by name."""

    def list(self) -> Iterator[Calendar]:
        """Return all calendars."""
        return self._transport.pages(listing(path("calendars"), Calendar))

    def get(self, name: str) -> Calendar:
        """Read a calendar. Raises NotFound."""
        return self._transport.send(getting(path("calendars", name), Calendar))

    def put(self, name: str, definition: Mapping[str, Any]) -> SavedCalendar:
        """Store a calendar, new or changed; the schedules that use it are rearmed."""
        return self._transport.send(putting(path("calendars", name), SavedCalendar, definition))

    def delete(self, name: str) -> None:
        """Delete a calendar that no job uses. Raises NotFound, Invalid."""
        self._transport.send(removing(path("calendars", name)))


class Files(Resource):
    """Files, by their names."""

    def list(self, *, page_size: int | None = None) -> Iterator[FileSummary]:
        """Return all files that were applied, in order of their names."""
        return self._transport.pages(listing(path("files"), FileSummary, page_size=page_size))

    def get(self, source: str) -> FileSummary:
        """Read a file. Raises NotFound."""
        return self._transport.send(getting(path("files", source), FileSummary))

    def jobs(self, source: str, *, drifted: bool = False, page_size: int | None = None) -> Iterator[FileJob]:
        """Return the jobs of a file, or those that have drifted since it was applied. Raises NotFound."""
        return self._transport.pages(
            listing(path("files", source, "jobs"), FileJob, page_size=page_size, drifted=drifted)
        )


class Backfills(Resource):
    """Backfills of past occurrences."""

    def list(self, job_id: Id | None = None, *, page_size: int | None = None) -> Iterator[BackfillStatus]:
        """Return the backfills of a job, or all, the last requested first; pages are read as they are needed."""
        return self._transport.pages(listing(path("backfills"), BackfillStatus, job_id=job_id, page_size=page_size))

    def get(self, backfill_id: Id) -> BackfillStatus:
        """Read the progress of a backfill. Raises NotFound."""
        return self._transport.send(getting(path("backfills", backfill_id), BackfillStatus))

    def cancel(self, backfill_id: Id) -> BackfillCancelled:
        """Stop a backfill; its runs that have not started are removed. Raises NotFound."""
        return self._transport.send(deleting(path("backfills", backfill_id), BackfillCancelled))
