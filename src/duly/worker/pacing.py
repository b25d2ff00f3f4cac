"""Delays of the engine: between wheel turns, after a failed start, before reconnecting.

A turn costs the same for one run as for fifty: two threads wake each other, and each has its own loop. So while many
runs are due each millisecond, they start in turns of a few milliseconds; and where all slots are taken nothing could
start, and a freed slot wakes the engine by itself. Alone, a run starts in the millisecond it is due.
"""

from __future__ import annotations

from duly.clock import Rng

TURN_SECONDS = 0.0005
TURN_BUSY_SECONDS = 0.005
BUSY = 4  # runs started in one turn, from which on more are waited for
REST_SECONDS = 0.1
REST_IDLE_SECONDS = 1.0
SETBACK_SECONDS, SETBACK_SECONDS_MAX = 0.25, 8.0
RETRY_SECONDS_MAX = 0.6


def pause(*, held: int, started: int, waiting: int, left_seconds: float | None) -> float:
    """Return how long to wait: `left_seconds` is until the next in the wheel is due, None with nothing in it."""
    if not held:
        return REST_IDLE_SECONDS
    least = TURN_BUSY_SECONDS if started >= BUSY or waiting else TURN_SECONDS
    return max(least, REST_SECONDS if left_seconds is None else min(REST_SECONDS, left_seconds))


class Setback:
    """The delay after the machine had no process or thread for us: longer each time, until it goes well for a while.

    Runs that fail together wait together, and count as one.
    """

    def __init__(self, seconds_max: float = SETBACK_SECONDS_MAX) -> None:
        self._seconds_max = seconds_max
        self._seconds = 0.0
        self._until = float("-inf")

    def seconds(self, now: float) -> float:
        """Return how long to wait from now on, after another failure."""
        if now >= self._until:
            is_new = now - self._until > SETBACK_SECONDS_MAX
            self._seconds = min(SETBACK_SECONDS if is_new else 2 * self._seconds, self._seconds_max)
            self._until = now + self._seconds
        return self._until - now


def retry_delay(rng: Rng, seconds_max: float = RETRY_SECONDS_MAX) -> float:
    """Return a random delay before a retry: otherwise all clients hit by one outage would come back at once."""
    return seconds_max * rng.uniform()
