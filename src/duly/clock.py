"""Time, chance and names, injected: nothing else in the engine asks the host for them.

Database time rules. Each reply of the store carries its clock; at the moment of receipt, `database − monotonic` is a lower
bound of the offset between the two, so `now()` never runs ahead of the database: firing at `now() ≥ due` is never early,
whatever the host's wall clock says. The bound is the highest seen, less 0.1 % of its age, because two oscillators drift
apart; it is dropped when a reply contradicts it.
"""

from __future__ import annotations

import asyncio
import random
import time
from datetime import UTC, datetime
from typing import Protocol
from uuid import UUID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DRIFT = 0.001
# A reply may be this much below the bound before the database clock counts as stepped back: replies overtake each other.
_CONTRADICTION_SECONDS = 0.5


def moment_of(seconds: float) -> datetime:
    """Turn seconds since 1970 into an aware moment."""
    return datetime.fromtimestamp(seconds, UTC)


def host_now() -> datetime:
    """Give the time of the host's own clock, for doors that have no database to ask."""
    return datetime.now(UTC)


class Clock(Protocol):
    """What the engine knows of time."""

    def now(self) -> float:
        """Give a lower bound of the database's clock, in seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Give seconds that never step."""
        ...

    def observe(self, database_at: datetime) -> None:
        """Take a reading of the database's clock, at the moment it arrived."""
        ...

    def forget(self) -> None:
        """Drop every reading: the next database may keep another time."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for a wake-up, at most so long; the wake-up is consumed."""
        ...


class SystemClock:
    """The real clock. One thread observes; any thread may read."""

    def __init__(self) -> None:
        self._best: tuple[float, float] | None = None  # when it was received, and database − monotonic then

    def now(self) -> float:
        """Give a lower bound of the database's clock; minus infinity before the first reading."""
        best = self._best
        if best is None:
            return float("-inf")
        monotonic = time.monotonic()
        return monotonic + best[1] - (monotonic - best[0]) * _DRIFT

    def monotonic(self) -> float:
        """Give seconds that never step."""
        return time.monotonic()

    def observe(self, database_at: datetime) -> None:
        """Keep the reading if it is better than the best one is by now, or contradicts it."""
        received = time.monotonic()
        offset = (database_at - _EPOCH).total_seconds() - received
        best = self._best
        aged = best[1] - (received - best[0]) * _DRIFT if best else float("-inf")
        if offset >= aged or offset < aged - _CONTRADICTION_SECONDS:
            self._best = (received, offset)

    def forget(self) -> None:
        """Drop the reading."""
        self._best = None

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for a wake-up, at most so long; the wake-up is consumed."""
        if not event.is_set() and seconds > 0:
            handle = asyncio.get_running_loop().call_later(seconds, event.set)
            try:
                await event.wait()
            finally:
                handle.cancel()
        event.clear()


class Rng:
    """Chance, from a seed in tests."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)

    def uniform(self) -> float:
        """Give a number in [0, 1)."""
        return self._random.random()

    def uuid(self) -> UUID:
        """Give a fresh random name."""
        return UUID(int=self._random.getrandbits(128), version=4)
