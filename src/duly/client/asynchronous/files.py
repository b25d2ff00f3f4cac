"""Files of schedules: who applied them and when, and what was changed since."""

from __future__ import annotations

from collections.abc import AsyncIterator

from duly.client.asynchronous.transport import AsyncLine
from duly.client.paging import listing
from duly.client.requests import getting, path
from duly.wire.jobs.manifests import FileJob, FileSummary


class AsyncFiles:
    """Files, by their names."""

    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    def list(self, *, page_size: int | None = None) -> AsyncIterator[FileSummary]:
        """Give all files that were applied, in order of their names."""
        return self._line.pages(listing(path("files"), FileSummary, page_size=page_size))

    async def get(self, source: str) -> FileSummary:
        """Read a file. Raises NotFound."""
        return await self._line.ask(getting(path("files", source), FileSummary))

    def jobs(self, source: str, *, drifted: bool = False, page_size: int | None = None) -> AsyncIterator[FileJob]:
        """Give the jobs of a file, or those that were changed since it was applied. Raises NotFound."""
        return self._line.pages(listing(path("files", source, "jobs"), FileJob, page_size=page_size, drifted=drifted))
