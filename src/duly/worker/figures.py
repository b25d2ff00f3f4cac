"""Figures of one worker process, over all its lives: runs started and ended, their start delay, and the engine's last turn."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from duly.domain.runs.outcome import Cancelled, Expired, Failed, Lost, Snoozed, Spent, Succeeded, TimedOut
from duly.moves.defer import Deferred
from duly.moves.settle import Settled
from duly.store.reads.tail import SKEW_BOUNDS

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
    """Counts of one process. The engine's thread writes them, and any thread may read them."""

    def __init__(self) -> None:
        self.started = 0
        self.deferred = 0
        self.ended: Counter[str] = Counter()
        self.delays = [0] * (len(SKEW_BOUNDS) + 1)
        self.delay_seconds = 0.0
        self.ticked_at: float | None = None

    def add(self, settled: Sequence[Settled | Deferred]) -> None:
        """Count attempts that have ended, and those that were deferred. Runs that had to wait have no start delay."""
        ended, delays = self.ended, self.delays
        for item in settled:
            if isinstance(item, Deferred):
                self.deferred += 1
                continue
            ended[_OUTCOMES[type(item.outcome)]] += 1
            run, started_at = item.run, item.started_at
            if started_at is not None and not run.history.waited:
                delay = (started_at - run.due_at).total_seconds()
                delays[bisect_left(SKEW_BOUNDS, delay)] += 1
                self.delay_seconds += delay
