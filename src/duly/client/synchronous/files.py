# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""Files of schedules: who applied them and when, and what was changed since."""

from __future__ import annotations

from collections.abc import Iterator

from duly.client.paging import listing
from duly.client.requests import getting, path
from duly.client.synchronous.transport import Line
from duly.wire.jobs.manifests import FileJob, FileSummary


class Files:
    """Files, by their names."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def list(self, *, page_size: int | None = None) -> Iterator[FileSummary]:
        """Give all files that were applied, in order of their names."""
        return self._line.pages(listing(path("files"), FileSummary, page_size=page_size))

    def get(self, source: str) -> FileSummary:
        """Read a file. Raises NotFound."""
        return self._line.ask(getting(path("files", source), FileSummary))

    def jobs(self, source: str, *, drifted: bool = False, page_size: int | None = None) -> Iterator[FileJob]:
        """Give the jobs of a file, or those that were changed since it was applied. Raises NotFound."""
        return self._line.pages(listing(path("files", source, "jobs"), FileJob, page_size=page_size, drifted=drifted))
