"""The watch: the pauses and limits that this life knows, and their age. A state that is too old is not acted on."""

from __future__ import annotations

import asyncio
from uuid import UUID

from duly.domain.limits.limit import StandingLimits
from duly.domain.limits.pause import Pauses
from duly.store.boxes import runs
from duly.store.boxes.runs import News
from duly.store.connection.database import Database, Unavailable

FRESH_SECONDS = 0.75  # nothing starts on an older state: so nothing new starts a second after a pause was answered
HEAR_SECONDS = 0.3  # how long a start waits for a fresh state; then the database is considered down, and due runs start


class Watch:
    """Reads the state, and remembers it."""

    def __init__(self, database: Database, worker_id: UUID) -> None:
        self.pauses = Pauses()
        self.limits = StandingLimits()
        self.is_draining = False
        self._database = database
        self._clock = database.clock
        self._worker_id = worker_id
        self._looked_at = float("-inf")
        self._is_silent = False
        self._wake = asyncio.Event()
        self._heard = asyncio.Event()

    @property
    def is_fresh(self) -> bool:
        """Return whether runs may be started on the known state; while the database is down, it suffices."""
        return self._is_silent or self._clock.monotonic() - self._looked_at <= FRESH_SECONDS

    async def look(self) -> News:
        """Read the state. Of two looks the one that was sent later counts."""
        sent_at = self._clock.monotonic()
        try:
            news = await runs.look(self._database, self._worker_id)
        except Unavailable:
            self._is_silent = True
            raise
        if sent_at >= self._looked_at:
            self._looked_at, self.pauses, self.limits = sent_at, news.pauses, news.limits
            self.is_draining = news.is_draining
        self._is_silent = False
        self._heard.set()
        return news

    async def rest(self, seconds: float) -> None:
        """Wait until the next look."""
        await self._clock.wait(self._wake, seconds)

    def wake(self) -> None:
        """Look now."""
        self._wake.set()

    async def catch_up(self) -> None:
        """Wait for a fresh state, but not for long: something is due."""
        deadline = self._clock.monotonic() + HEAR_SECONDS
        while not self.is_fresh:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                self._is_silent = True
                return
            self.wake()
            await self._clock.wait(self._heard, left)
