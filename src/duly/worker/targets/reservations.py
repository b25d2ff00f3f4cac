"""Reservations at a rate limit: moments at which a worker may send, granted ahead of time and valid for a little while.

Each is granted to one worker, so that all workers together keep to the rate. A reservation that is not used within
`GOOD_SECONDS` of its moment is lost, because saved ones would be sent at once; at lower rates, it is valid until the
next one, and for a second at most.
"""

from __future__ import annotations

from collections import deque
from math import ceil

GOOD_SECONDS = 0.25
_GOOD_SECONDS_MAX = 1.0


class _Stretch:
    """Reservations that were granted together, evenly spaced."""

    __slots__ = ("first", "left", "spacing")

    def __init__(self, first: float, spacing: float, left: int) -> None:
        self.first = first
        self.spacing = spacing
        self.left = left

    def drop_past(self, now: float) -> None:
        """Drop the expired ones."""
        past = now - max(GOOD_SECONDS, min(self.spacing, _GOOD_SECONDS_MAX)) - self.first
        if past > 0:
            self.advance(min(self.left, ceil(past / self.spacing)))

    def advance(self, number: int) -> None:
        """Skip so many of them."""
        self.first += number * self.spacing
        self.left -= number


class Reservations:
    """The reservations that one worker holds for one destination."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: deque[_Stretch] = deque()

    def add(self, first: float, spacing: float, number: int) -> None:
        """Add so many, the first at a moment."""
        if number > 0:
            self._stretches.append(_Stretch(first, spacing, number))

    def take(self, now: float) -> bool:
        """Use one. False: none is due."""
        stretch = self._next(now)
        if stretch is None or stretch.first > now:
            return False
        stretch.advance(1)
        return True

    def held(self, now: float) -> int:
        """Return how many there are, now and to come."""
        self._next(now)
        return sum(stretch.left for stretch in self._stretches)

    def seconds_to_next(self, now: float) -> float | None:
        """Return how long it is until one may be used, if one is to come."""
        stretch = self._next(now)
        return None if stretch is None else max(0.0, stretch.first - now)

    def _next(self, now: float) -> _Stretch | None:
        while self._stretches:
            stretch = self._stretches[0]
            stretch.drop_past(now)
            if stretch.left:
                return stretch
            self._stretches.popleft()
        return None
