"""Figures of one worker process, over all its lives: what it claimed, started, ended and settled, and how long that took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from duly.domain.diagnosis.figures import DELAY_BOUNDS, Histogram
from duly.domain.runs.outcome import Cancelled, Expired, Failed, Lost, Snoozed, Spent, Succeeded, TimedOut
from duly.moves.defer import Deferred
from duly.moves.settle import End
from duly.store.boxes.leased import Finished

# As history names them.
_OUTCOMES = {
    Succeeded: "succeeded",
    Failed: "failed",
    TimedOut: "timed_out",
    Lost: "lost",
    Cancelled: "cancelled",
    Snoozed: "snoozed",
    Expired: "skipped",
    Spent: "skipped",
}


class Figures:
    """Counts of one process. The engine's thread writes them, those of webhooks the handlers' loop; any thread may read them."""

    def __init__(self) -> None:
        self.started = 0
        self.deferred = 0
        self.ended: Counter[str] = Counter()
        self.claimed = 0
        self.delays = Histogram(DELAY_BOUNDS)
        self.claims = Histogram()
        self.settles = Histogram()
        self.ticked_at: float | None = None

    def add(self, settled: Sequence[End | Deferred]) -> None:
        """Count attempts that have ended, and those that were deferred. Runs that had to wait have no start delay."""
        ended, observe, succeeded = self.ended, self.delays.observe, 0
        for item in settled:
            if isinstance(item, Deferred):
                self.deferred += 1
                continue
            run = item.run
            if isinstance(item, Finished):
                succeeded += 1
                started: float | None = item.started
            else:
                ended[_OUTCOMES[type(item.outcome)]] += 1
                started = None if item.started_at is None else item.started_at.timestamp()
            if started is not None and not run.history.waited:
                observe(started - run.due_at.timestamp())
        ended["succeeded"] += succeeded
