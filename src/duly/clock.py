"""Time, randomness and ids, injected: nothing else in the engine asks the host for them.

Database time rules. Each reply of the store carries its clock; at the moment of receipt, `database − monotonic` is a
lower bound of the offset between the two, so `now()` never runs ahead of the database: firing at `now() ≥ due` is never
early, whatever the host's wall clock says. The bound is the highest of the last ten seconds, less 0.1 % of its age,
because two oscillators drift apart; it is dropped when a reply contradicts it, and when a new connection leads to
another server, which may be a little behind the one before. A smaller step back of the same server is seen when the ten
seconds are over. The best reading of ten seconds may be better than what follows it, so the bound goes back a little
now and then.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from datetime import UTC, datetime
from typing import Protocol
from uuid import UUID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DRIFT = 0.001
# A reply may be this much below the bound before the database clock counts as stepped back: replies overtake each other.
_CONTRADICTION_SECONDS = 0.5
_WINDOW_SECONDS = 10.0


_Reading = tuple[float, float]  # when it was received, and database − monotonic then


def _aged(reading: _Reading, monotonic: float) -> float:
    """Return the present worth of a reading."""
    return reading[1] - (monotonic - reading[0]) * _DRIFT


def moment_of(seconds: float) -> datetime:
    """Turn seconds since 1970 into an aware moment."""
    return datetime.fromtimestamp(seconds, UTC)


def host_now() -> datetime:
    """Return the time of the host's own clock, for callers without a database."""
    return datetime.now(UTC)


def host_sleep(seconds: float) -> None:
    """Sleep and block the thread, for callers without a loop."""
    time.sleep(seconds)


class Clock(Protocol):
    """The engine's clock."""

    def now(self) -> float:
        """Return a lower bound of the database's clock, in seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        ...

    def observe(self, database_at: datetime) -> None:
        """Take a reading of the database's clock, at the moment it arrived."""
        ...

    def connected(self, database_at: datetime, server: object) -> None:
        """Take a reading over a new connection, and drop all earlier ones of another server, which may have another time."""
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
        self._readings: list[_Reading] = []  # of the last ten seconds, each better than all that came after it
        self._best: _Reading | None = None
        self._server: object = None

    def now(self) -> float:
        """Return a lower bound of the database's clock; minus infinity before the first reading."""
        best = self._best
        if best is None:
            return float("-inf")
        monotonic = time.monotonic()
        return monotonic + _aged(best, monotonic)

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def observe(self, database_at: datetime) -> None:
        """Keep the reading until a better one comes or ten seconds have passed; alone, if it contradicts the best."""
        self._keep(self._readings, database_at)

    def connected(self, database_at: datetime, server: object) -> None:
        """Keep this reading, of another server alone. There is always one: another thread may read the time."""
        earlier = self._readings if server == self._server else []
        self._server = server
        self._keep(earlier, database_at)

    def _keep(self, earlier: list[_Reading], database_at: datetime) -> None:
        received = time.monotonic()
        offset = (database_at - _EPOCH).total_seconds() - received
        better = [
            reading
            for reading in earlier
            if received - reading[0] <= _WINDOW_SECONDS and _aged(reading, received) > offset
        ]
        if better and offset < _aged(better[0], received) - _CONTRADICTION_SECONDS:
            better = []
        self._readings = [*better, (received, offset)]
        self._best = self._readings[0]

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
    """Randomness, from a seed in tests."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._is_seeded = seed is not None

    def uniform(self) -> float:
        """Return a number in [0, 1)."""
        return self._random.random()

    def uuid(self) -> UUID:
        """Return a fresh random id."""
        return UUID(int=self._random.getrandbits(128), version=4)

    def secret(self, size: int) -> bytes:
        """Return secure random bytes: from the host's secure source, unless a test has seeded us."""
        return self._random.randbytes(size) if self._is_seeded else secrets.token_bytes(size)
