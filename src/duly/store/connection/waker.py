"""Wake-ups after a submit: a hint to the workers of a queue, or to the schedulers, who need not wait for their next look."""

from __future__ import annotations

import asyncio

from duly.store.connection import hints
from duly.store.connection.database import Database

PAUSE_SECONDS = 0.001


class Waker:
    """Sends hints on a connection of our own: one in flight at most, a pause apart, those of that time together."""

    def __init__(self, database: Database, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._database = database
        self._pause_seconds = pause_seconds
        self._queues: set[str] = set()
        self._sending: asyncio.Task[None] | None = None

    def wake(self, queue: str) -> None:
        """Hint that `queue` has something ready; does not wait."""
        self._queues.add(queue)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send(), name="duly-wake")

    async def _send(self) -> None:
        while self._queues:
            queues, self._queues = sorted(self._queues), set()
            try:
                await hints.send(self._database, queues)
            except Exception:  # noqa: BLE001 - a hint that is lost costs a moment; workers look by themselves
                return
            await self._database.clock.sleep(self._pause_seconds)

    async def close(self) -> None:
        """Drop what has not been sent."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
