"""Rounds of loops: names each loop that hangs or keeps failing, even while the process sends heartbeats."""

from __future__ import annotations

from collections.abc import Mapping

AGE_SECONDS_MAX = 60.0
# Loops that runs wait for. Cleaning up may take long without harm.
NAMES = (
    "backfills",
    "carry_out",
    "check_dependents",
    "expire",
    "mind",
    "reserve",
    "release",
    "run_workflow_tasks",
    "deliver_callbacks",
    "time_out",
    "zones",
)


class Rounds:
    """The last completed round of each loop of a process, on the monotonic clock."""

    __slots__ = ("_ended",)

    def __init__(self) -> None:
        self._ended: dict[str, float] = {}

    def begin(self, name: str, now: float) -> None:
        """Register a loop, which has completed no round yet. A loop that no run waits for is not watched."""
        if name in NAMES:
            self._ended[name] = now

    def end(self, name: str, now: float) -> None:
        """Record that a loop has completed a round."""
        if name in self._ended:
            self._ended[name] = now

    def ages(self, now: float) -> dict[str, float]:
        """Return how long ago each loop completed a round, or was registered."""
        return {name: max(0.0, now - ended) for name, ended in list(self._ended.items())}  # Another thread may read.


def overdue(ages: Mapping[str, float]) -> list[str]:
    """Return the loops that have not completed a round for too long, the longest first."""
    found = [name for name, age in ages.items() if age > AGE_SECONDS_MAX]
    return sorted(found, key=lambda name: -ages[name])
