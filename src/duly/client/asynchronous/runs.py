"""Runs: where each stands, its attempts and its log; cancel and replay."""

from __future__ import annotations

from collections.abc import AsyncIterator

from duly.client.asking import Id, getting, path, posting
from duly.client.asynchronous.line import AsyncLine
from duly.client.following import LINGER_SECONDS, LOOK_SECONDS
from duly.client.paging import listing
from duly.wire.explanations import Explanation
from duly.wire.runs import Attempt, LogLine, LogPage, Run, RunCancelled, RunMoved, RunSummary


class AsyncRuns:
    """Runs, by their ids."""

    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    def list(self, filter: str | None = None, *, page_size: int | None = None) -> AsyncIterator[RunSummary]:
        """Give the runs that fit a filter, the last scheduled first; pages are read as they are needed."""
        return self._line.pages(listing(path("runs"), RunSummary, filter=filter, page_size=page_size))

    async def get(self, run_id: Id) -> Run:
        """Read a run as it stands, with its attempts. Raises NotFound."""
        return await self._line.ask(getting(path("runs", run_id), Run))

    async def explain(self, run_id: Id) -> Explanation:
        """Say why a run is where it is. Raises NotFound."""
        return await self._line.ask(getting(path("runs", run_id, "explain"), Explanation))

    def attempts(self, run_id: Id) -> AsyncIterator[Attempt]:
        """Give the attempts of a run, in order. Raises NotFound."""
        return self._line.pages(listing(path("runs", run_id, "attempts"), Attempt))

    async def logs(self, run_id: Id, *, follow: bool = False) -> AsyncIterator[LogLine]:
        """Give what a run logged, over all its attempts; with `follow`, wait for more until it has ended. Raises NotFound."""
        token, is_over = None, False
        while True:
            page = await self._line.ask(getting(path("runs", run_id, "logs"), LogPage, page_token=token))
            for line in page.items:
                yield line
            token = page.next_page_token
            if not page.items and (is_over or not follow):
                return
            # Workers write lines in batches, so the last ones come a moment after the end.
            is_over = page.is_final
            if follow and not page.items:
                await self._line.pause(LINGER_SECONDS if is_over else LOOK_SECONDS)

    async def cancel(self, run_id: Id) -> RunCancelled:
        """Cancel a run: one that waits is taken out; of one that runs, its worker is asked to end it. Raises NotFound."""
        return await self._line.ask(posting(path("runs", run_id, "cancel"), RunCancelled))

    async def replay(self, run_id: Id) -> RunMoved:
        """Give a dead run another set of attempts. Raises NotFound, Conflict."""
        return await self._line.ask(posting(path("runs", run_id, "replay"), RunMoved))
