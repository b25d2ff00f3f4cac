"""The scratch PostgreSQL of a test session: started once, forgotten at its end. Each environment gets a database of its own."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from datetime import datetime
from functools import cache
from itertools import count
from pathlib import Path

from duly.postgres import embedded
from duly.sdk.background import Background
from duly.store.connection import test_clock
from duly.store.connection.database import Database
from duly.store.schema.migrate import migrate

_TEMPLATE = "duly_template"
# Nothing lives long enough to be vacuumed, and a database in which a vacuum is at work cannot be dropped by force.
_SETTINGS = {"shared_buffers": "64MB", "autovacuum": "off"}


class Scratch:
    """A server that is fast because it would forget everything in a crash."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="duly-testing-"))
        self._server = embedded.start(self._folder / "data", durable=False, settings=_SETTINGS)
        self._background = Background()
        self._numbers = count(1)
        self._background.run(self._make_template())

    def create(self, at: datetime) -> tuple[str, str]:
        """Create a database whose clock is set to `at`. Returns its name and address."""
        name = f"test_{next(self._numbers)}"
        self._background.run(self._create(name, at))
        return name, self._url(name)

    def drop(self, name: str) -> None:
        """Drop a database, even with connections."""
        self._background.run(self._execute(f"drop database if exists {name} with (force)"))

    def stop(self) -> None:
        """Stop the server and remove its data."""
        self._background.close()
        self._server.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _make_template(self) -> None:
        await self._execute(f"create database {_TEMPLATE}")
        async with Database(self._url(_TEMPLATE)) as database:
            await migrate(database)
            await test_clock.mark_as_made_for_tests(database)

    async def _create(self, name: str, at: datetime) -> None:
        # Copying files is several times faster than writing the copy to the log.
        await self._execute(f"create database {name} template {_TEMPLATE} strategy file_copy")
        async with Database(self._url(name)) as database:
            await test_clock.install(database, at)

    async def _execute(self, statement: str) -> None:
        async with Database(self._server.url) as database:
            await database.execute(statement)

    def _url(self, name: str) -> str:
        return self._server.url.replace(":///duly?", f":///{name}?")


@cache
def scratch() -> Scratch:
    """Return the server of this process, started at the first call."""
    started = Scratch()
    atexit.register(started.stop)
    return started
