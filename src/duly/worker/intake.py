"""The intake: how much to claim, and when.

Due rows are claimed for the slots that are free plus what will finish within a quarter of a second. Beyond that a worker
claims ahead of due, into its wheel, where a run uses no slot. How far ahead is learnt: the budget doubles while what was
claimed could start in time, and falls back when runs had to wait for a slot; so a slow worker does not hoard.
"""

from __future__ import annotations

import msgspec

CLAIM_MAX = 2_000
SOON_SECONDS = 0.25
AHEAD_PER_SLOT_MAX = 50


class Room(msgspec.Struct):
    """Decides how many runs may be claimed. Pure: fed with counts, asked for a number."""

    slots: int
    ahead: int = 0
    rate: float = 0.0  # runs finished per second, smoothed

    def __post_init__(self) -> None:
        self.ahead = self.slots

    def observe(self, finished: int, seconds: float) -> None:
        """Learn how fast runs finish."""
        if seconds > 0:
            self.rate += (finished / seconds - self.rate) * min(1.0, seconds / 0.2)

    def grow(self) -> None:
        """What was claimed ahead could start in time: dare more."""
        self.ahead = min(self.slots * AHEAD_PER_SLOT_MAX, self.ahead * 2)

    def shrink(self) -> None:
        """Runs had to wait for a slot: claim less ahead."""
        self.ahead = max(1, self.slots // 4)

    def left(self, *, free: int, waiting: int, held_ahead: int) -> int:
        """Say how many runs to claim now."""
        soon = min(CLAIM_MAX, int(self.rate * SOON_SECONDS))
        due = free + soon - waiting
        if waiting and due < soon // 2:
            return 0  # There is work in hand: wait until a batch is worth asking for.
        ahead = max(0, self.ahead - held_ahead) if waiting == 0 else 0
        return max(0, min(CLAIM_MAX, due + ahead))
