"""A real server on loopback with its door open, over the database of a test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from duly.api.server.listen import address_of, listen
from duly.api.server.server import Server
from duly.cli.up.dispatcher import opened_dispatcher
from duly.store.connection.database import Database
from tests.api.application import Application
from tests.api.conftest import parts_of
from tests.api.front import Front
from tests.builders import a_scheduler, a_worker

# For doors at which people can log in, as all of these are; one is open at a time.
application = Application()


@asynccontextmanager
async def an_open_door(database: Database, **door: Any) -> AsyncIterator[Front]:
    """Serve the API on loopback, also for people who log in."""
    await a_scheduler(database)
    await a_worker(database)
    vitals = parts_of(database).vitals
    with listen("127.0.0.1", 0) as listener:
        async with opened_dispatcher(database, **door) as opened:
            server = Server(application.over(vitals, opened), listener)
            serving = asyncio.create_task(server.run())
            async with httpx.AsyncClient(base_url=address_of(listener), timeout=30) as client:
                yield Front(client, database, [], opened)
            opened.close()
            server.stop()
            await serving
