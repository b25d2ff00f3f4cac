"""A PostgreSQL that goes away, and comes back with what it had acknowledged."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from duly.postgres import embedded
from duly.postgres.embedded import Embedded
from duly.store.connection.database import Database
from duly.store.schema.migrate import migrate


@contextmanager
def a_server(folder: Path) -> Iterator[Embedded]:
    """Start one of its own, which can be killed, with our schema in it."""
    with embedded.start(folder / "postgres", durable=True, settings={"shared_buffers": "32MB"}) as running:
        asyncio.run(_migrate(running.url))
        yield running


async def _migrate(url: str) -> None:
    async with Database(url) as database:
        await migrate(database)


@asynccontextmanager
async def away(server: Embedded) -> AsyncIterator[None]:
    """Kill it, and start it again on the same data at the end."""
    os.kill(server.pid, signal.SIGKILL)
    async with asyncio.timeout(20):
        while server.is_running:
            await asyncio.sleep(0.01)
    try:
        yield
    finally:
        await asyncio.to_thread(server.revive)
