"""The intake: how much to claim, and when.

There is one for each pool of slots, because what fills one leaves another idle.

Due rows are claimed for the free slots plus those that will be free within a quarter of a second. Beyond that a worker
claims ahead of due, into its wheel, where a run uses no slot. How far ahead is learnt: the budget doubles while claimed
runs were not yet due, and falls to zero when runs had to wait for a slot; so a slow worker does not hoard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from duly.worker.slots import Pool

CLAIM_MAX = 2_000
SOON_SECONDS = 0.25
RATE_SECONDS = 1.0  # longer than what is claimed ahead, or runs that end together would make it swing
AHEAD_PER_SLOT_MAX = 50


class Room(msgspec.Struct):
    """Decides how many runs to claim. Pure: fed with counts, asked for a number."""

    slots: int
    ahead: int = 0
    rate: float = 0.0  # runs finished per second, smoothed

    def __post_init__(self) -> None:
        self.ahead = self.slots

    @property
    def soon(self) -> int:
        """Return how many slots will come free within a quarter of a second."""
        return min(CLAIM_MAX, int(self.rate * SOON_SECONDS))

    def observe(self, finished: int, seconds: float) -> None:
        """Learn how fast runs finish."""
        if seconds > 0:
            self.rate += (finished / seconds - self.rate) * min(1.0, seconds / RATE_SECONDS)

    @property
    def may_grow(self) -> bool:
        """Return whether more runs could be held ahead of their due moment."""
        return self.ahead < self.slots * AHEAD_PER_SLOT_MAX

    def grow(self) -> None:
        """Hold more runs ahead of their due moment: there are some."""
        self.ahead = min(self.slots * AHEAD_PER_SLOT_MAX, max(1, self.slots // 4, self.ahead * 2))

    def shrink(self) -> None:
        """Claim none ahead: due runs had to wait for a slot."""
        self.ahead = 0

    def left(self, *, free: int, waiting: int, leased_ahead: int) -> int:
        """Return how many runs to claim now."""
        soon = self.soon
        due = free + soon - waiting
        if waiting and due < soon // 2:
            return 0  # there is work in hand: wait until a batch is worth a claim
        ahead = max(0, self.ahead - leased_ahead) if waiting == 0 else 0
        return max(0, min(CLAIM_MAX, due + ahead))


class Intake:
    """The claims and held runs of one pool of slots."""

    def __init__(self, pool: Pool, handlers: Sequence[str], room: Room) -> None:
        self.pool = pool
        self.handlers = handlers
        self.room = room
        self.leased_ahead = 0  # in the wheel
        self.more = False  # the last claim took all we had room for, so there may be more
        self.wake = asyncio.Event()
        self.claiming = asyncio.Lock()

    @property
    def worth_asking(self) -> int:
        """Return the least number of runs worth a claim: with work in the wheel, half of what may be held there."""
        return max(1, self.room.ahead // 2 if self.leased_ahead else self.room.soon // 2)
