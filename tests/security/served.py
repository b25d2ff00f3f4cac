"""The application on a real socket and a database of its own, in a thread: for tools that speak HTTP by themselves."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import httpx

from duly.api.app import create
from duly.api.auth.api_keys import Keys
from duly.api.dispatch import Dispatcher
from duly.api.health import Vitals
from duly.api.metrics.collector import Metrics
from duly.api.server.server import Server
from duly.log import Log
from duly.moves.admin.admit import Admission
from duly.store.connection.database import Database
from duly.store.connection.session import Sessions
from duly.store.schema.migrate import migrate
from tests.api.front import Front
from tests.kept import a_keyring

T = TypeVar("T")


class Kept(Log):
    """A log that keeps what needs a person."""

    def __init__(self) -> None:
        super().__init__("served")
        self.errors: list[dict[str, Any]] = []

    def error(self, event: str, **fields: Any) -> None:
        """Keep it."""
        self.errors.append({"event": event, **fields})


class Served:
    """A front door that is open from `start` to `stop`. Time is real here, so that waits end."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="served", daemon=True)
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._listener = listener
        self.log = Kept()
        self.front: Front

    def run(self, doing: Coroutine[Any, Any, T], seconds: float = 60) -> T:
        """Do something on the loop of the application, and wait for it."""
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(seconds)

    def start(self) -> None:
        """Open the door."""
        self._thread.start()
        self.run(self._open())

    def stop(self) -> None:
        """Close it, and end the thread."""
        self.run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _open(self) -> None:
        self._database = await Database(self._database_url, size_max=6, keyring=a_keyring).__aenter__()
        await migrate(self._database)
        await self._database.read_clock()  # When it was opened there was no clock to be read.
        self._sessions = await Sessions(self._database).__aenter__()
        log = self.log
        door = Dispatcher(
            self._database,
            self._sessions,
            Keys(self._database),
            Admission(self._database),
            lambda _: None,
            log,
        )
        vitals = Vitals(
            database=self._database,
            scheduler=SimpleNamespace(shards=0, lag_seconds=0.0, stepped_at=None),
            reaped_at=lambda: None,
            tick_seconds=1.0,
            horizon_seconds=5.0,
            workers_expected=0,
            started=True,
        )
        self._server = Server(create(vitals, Metrics(vitals.database, log), log, door), self._listener)
        self._serving = asyncio.get_running_loop().create_task(self._server.run())
        client = httpx.AsyncClient(base_url=self.url, timeout=30)
        self.front = Front(client, self._database, [], door)
        while not self._server.started:
            await asyncio.sleep(0.01)

    async def _close(self) -> None:
        self.front.door.close()
        await self.front.client.aclose()
        self._server.stop()
        await self._serving
        await self._sessions.__aexit__(None, None, None)
        await self._database.__aexit__(None, None, None)
