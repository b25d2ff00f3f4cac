"""Wake-up hints for workers: what a listener hears, and a transaction that keeps others from sending theirs with the commit."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import asyncpg

from duly.store.connection import hints

_END = "the end"


class Heard:
    """The queues and handlers named by the hints that came so far."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._payloads: list[str] = []

    async def listen(self) -> None:
        """Hear hints from now on."""
        await self._connection.add_listener(hints.READY_CHANNEL, lambda *event: self._payloads.append(event[-1]))

    async def all(self) -> list[tuple[str, str]]:
        """Give those of all transactions that have committed: notifications come in the order of commits."""
        await self._connection.execute(f"notify {hints.READY_CHANNEL}, '{_END}'")
        async with asyncio.timeout(5):
            while self._payloads[-1:] != [_END]:
                await asyncio.sleep(0.001)
        return list(self._names())

    def _names(self) -> Iterator[tuple[str, str]]:
        return (hints.names_of(payload) for payload in self._payloads if payload != _END)


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[Heard]:
    """Hear hints meanwhile."""
    connection = await asyncpg.connect(url)
    heard = Heard(connection)
    await heard.listen()
    try:
        yield heard
    finally:
        await connection.close()


@asynccontextmanager
async def a_submit_that_stays_open(url: str) -> AsyncIterator[None]:
    """Leave a transaction open that has submitted something, and undo it at the end: meanwhile no other notifies."""
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("select duly.submit('another', queue => 'elsewhere')")
    try:
        yield
    finally:
        await transaction.rollback()
        await connection.close()
