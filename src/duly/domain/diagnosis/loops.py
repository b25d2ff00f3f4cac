"""When each loop last ended a round: what hangs, or fails each time, is told by name, though the others beat on."""

from __future__ import annotations

from collections.abc import Mapping

AGE_SECONDS_MAX = 60.0
# What runs wait for. What clears up behind them may take long, and harms nobody by it.
NAMES = (
    "backfills",
    "carry_out",
    "check_followers",
    "expire",
    "mind",
    "pace",
    "release",
    "run_errands",
    "tell",
    "time_out",
    "zones",
)


class Rounds:
    """The rounds of one process, on its monotonic clock."""

    __slots__ = ("_ended",)

    def __init__(self) -> None:
        self._ended: dict[str, float] = {}

    def begin(self, name: str, now: float) -> None:
        """Say that a loop runs from now on; it has ended no round yet. One that nobody waits for is not watched."""
        if name in NAMES:
            self._ended[name] = now

    def end(self, name: str, now: float) -> None:
        """Say that a loop has done its round."""
        if name in self._ended:
            self._ended[name] = now

    def ages(self, now: float) -> dict[str, float]:
        """Return how long ago each loop ended a round, or began."""
        return {name: max(0.0, now - ended) for name, ended in list(self._ended.items())}  # Another thread may ask.


def overdue(ages: Mapping[str, float]) -> list[str]:
    """Name the loops that have not ended a round for too long, the longest first."""
    late = [name for name, age in ages.items() if age > AGE_SECONDS_MAX]
    return sorted(late, key=lambda name: -ages[name])
