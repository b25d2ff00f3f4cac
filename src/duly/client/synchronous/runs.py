# Made from ../asynchronous by tests/client/twins.py; change that one.
"""Runs: where each stands, its attempts and its log; cancel and replay."""

from __future__ import annotations

from collections.abc import Iterator

from duly.client.asking import Id, getting, path, posting
from duly.client.following import LINGER_SECONDS, LOOK_SECONDS
from duly.client.paging import listing
from duly.client.synchronous.line import Line
from duly.wire.explanations import Explanation
from duly.wire.runs import Attempt, LogLine, LogPage, Run, RunCancelled, RunMoved, RunSummary


class Runs:
    """Runs, by their ids."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def list(self, filter: str | None = None, *, page_size: int | None = None) -> Iterator[RunSummary]:
        """Give the runs that fit a filter, the last scheduled first; pages are read as they are needed."""
        return self._line.pages(listing(path("runs"), RunSummary, filter=filter, page_size=page_size))

    def get(self, run_id: Id) -> Run:
        """Read a run as it stands, with its attempts. Raises NotFound."""
        return self._line.ask(getting(path("runs", run_id), Run))

    def explain(self, run_id: Id) -> Explanation:
        """Say why a run is where it is. Raises NotFound."""
        return self._line.ask(getting(path("runs", run_id, "explain"), Explanation))

    def attempts(self, run_id: Id) -> Iterator[Attempt]:
        """Give the attempts of a run, in order. Raises NotFound."""
        return self._line.pages(listing(path("runs", run_id, "attempts"), Attempt))

    def logs(self, run_id: Id, *, follow: bool = False) -> Iterator[LogLine]:
        """Give what a run logged, over all its attempts; with `follow`, wait for more until it has ended. Raises NotFound."""
        token, is_over = None, False
        while True:
            page = self._line.ask(getting(path("runs", run_id, "logs"), LogPage, page_token=token))
            yield from page.items
            token = page.next_page_token
            if not page.items and (is_over or not follow):
                return
            # Workers write lines in batches, so the last ones come a moment after the end.
            is_over = page.is_final
            if follow and not page.items:
                self._line.pause(LINGER_SECONDS if is_over else LOOK_SECONDS)

    def cancel(self, run_id: Id) -> RunCancelled:
        """Cancel a run: one that waits is taken out; of one that runs, its worker is asked to end it. Raises NotFound."""
        return self._line.ask(posting(path("runs", run_id, "cancel"), RunCancelled))

    def replay(self, run_id: Id) -> RunMoved:
        """Give a dead run another set of attempts. Raises NotFound, Conflict."""
        return self._line.ask(posting(path("runs", run_id, "replay"), RunMoved))
