"""Wake-up hints: a signal to poll, never data. They may be lost.

A submit sends its hint with its own commit (`duly.hint`); where it cannot, and for other moves, the hint is sent after
the commit, on a connection of our own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import asyncpg

from duly.domain.errors import DulyError
from duly.store.connection.database import Database
from duly.store.connection.hosts import Hosts, let_server_ask
from duly.store.connection.statements import load

SQL = load("connection/hints")
PAUSE_SECONDS = 0.001  # between two hints after submits
READY_CHANNEL = "duly_ready"
PAUSES_CHANNEL = "duly_pauses"
DUE_CHANNEL = "duly_due"
NAMES_SEPARATOR = "\x01"
DUE = "@due"  # beside queues, which have no such name: for the schedulers, whose timers have something due soon


async def send(database: Database, queues: Sequence[str]) -> None:
    """Notify the workers of these queues, and the schedulers, if `DUE` is among them, to poll."""
    await database.fetch(SQL["send"], queues)


async def send_to_all(database: Database) -> None:
    """Notify every worker to poll."""
    await database.fetch(SQL["send_to_all"])


async def send_pauses_changed(database: Database) -> None:
    """Notify every worker that a pause has changed."""
    with suppress(DulyError):  # a lost hint costs a moment: workers poll anyway
        await database.fetch(SQL["send_pauses_changed"])


async def listen(database: Database, heard: Mapping[str, Callable[[str], object]], is_over: Callable[[], bool]) -> None:
    """Call the listener of each hint with its payload. The poll is the truth, so a lost connection costs only latency.

    Behind a pooler there are no hints: a listener belongs to a session, and sessions are shared there.
    """
    if database.pooler:
        return
    hosts = Hosts(database.url)
    while not is_over():
        try:
            connection = await hosts.connect(timeout=5.0, statement_cache_size=0)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
            await database.clock.sleep(2.0)
            continue
        try:
            await let_server_ask(connection)
            for channel, call in heard.items():
                await connection.add_listener(channel, lambda *event, call=call: call(event[-1]))
            while not connection.is_closed():
                await database.clock.sleep(1.0)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await database.clock.sleep(1.0)
        finally:
            connection.terminate()


def names_of(payload: str) -> tuple[str, str]:
    """Return the queue and the handler that a hint for workers names; an empty one means all."""
    queue, _, handler = payload.partition(NAMES_SEPARATOR)
    return queue, handler


class Waker:
    """Sends hints after submits on a connection of our own: one in flight, with a pause between, coalescing those of
    that time.
    """

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
                await send(self._database, queues)
            except Exception:  # noqa: BLE001 - a hint that is lost costs a moment; workers look by themselves
                return
            await self._database.clock.sleep(self._pause_seconds)

    async def close(self) -> None:
        """Drop unsent hints."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
