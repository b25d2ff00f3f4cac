"""A clock that moves only when told: Python's time and SQL's together."""

import asyncio
from datetime import UTC, datetime, timedelta

from duly.store.connection import test_clock
from duly.store.connection.database import Database

START = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ManualClock:
    """Implements `duly.clock.Clock`."""

    def __init__(self, at: datetime = START) -> None:
        self.at = at
        self._monotonic = 1000.0
        self._databases: list[Database] = []

    def moves(self, database: Database) -> None:
        """Move the time of `database` too from now on."""
        self._databases.append(database)

    async def advance(self, by: timedelta | float) -> datetime:
        """Let time pass."""
        span = by if isinstance(by, timedelta) else timedelta(seconds=by)
        self._monotonic += span.total_seconds()
        return await self.step(span)

    async def step(self, by: timedelta | float) -> datetime:
        """Set the database's clock forwards or back, while no time passes."""
        self.at += by if isinstance(by, timedelta) else timedelta(seconds=by)
        for database in self._databases:
            await test_clock.move(database, self.at)
        return self.at

    def now(self) -> float:
        """Give the database's clock."""
        return (self.at - _EPOCH).total_seconds()

    def monotonic(self) -> float:
        """Give seconds that never step."""
        return self._monotonic

    def observe(self, database_at: datetime) -> None:
        """Take a reading: it can only be what we set."""
        assert database_at == self.at

    def connected(self, database_at: datetime, server: object) -> None:
        """Take a reading of a new connection: what we set may not have reached the database yet."""

    async def sleep(self, seconds: float) -> None:
        """Let the others go on; time stands."""
        await asyncio.sleep(min(seconds, 0.001))

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Let the others go on; the wake-up is consumed."""
        await self.sleep(seconds)
        event.clear()
