"""Duly: two `duly worker` and one `duly scheduler` with their defaults, as its documentation says to run it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import asyncpg

from benchmarks.peers.adapters.duly_app import app, noop
from benchmarks.peers.system import WORKERS, System
from duly.store.connection.database import Database
from duly.store.schema.migrate import migrate

_BATCH = 5_000
_APP = "benchmarks.peers.adapters.duly_app:app"
_UNFINISHED = """
select (select count(*) from duly.ready) + (select count(*) from duly.leased)
     + (select count(*) from duly.timers) + (select count(*) from duly.blocked)
"""


class Adapter(System):
    """Duly by its SDK."""

    def __init__(self) -> None:
        super().__init__()
        os.environ["DULY_DATABASE_URL"] = self.url

    async def create(self) -> None:
        async with Database(self.url) as database:
            await migrate(database)

    async def open(self) -> None:
        await app.__aenter__()
        self._probe = await asyncpg.connect(self.url)

    async def close(self) -> None:
        await self._probe.close()
        await app.__aexit__(None, None, None)

    async def submit_many(self, number: int, reference: float, due: float | None = None) -> None:
        handler = noop if due is None else noop.options(at=datetime.fromtimestamp(due, UTC))
        for start in range(0, number, _BATCH):
            await handler.submit_many([{"ref": reference}] * min(_BATCH, number - start))

    async def submit(self, reference: float) -> None:
        await noop.submit(ref=reference)

    @contextmanager
    def sync(self) -> Iterator[Callable[[], object]]:
        yield lambda: noop.submit_sync(ref=0.0)

    async def unfinished(self) -> int:
        count: int = await self._probe.fetchval(_UNFINISHED)
        return count

    def commands(self) -> Sequence[Sequence[str]]:
        duly = [sys.executable, "-m", "duly"]
        return [*[[*duly, "worker", _APP]] * WORKERS, [*duly, "scheduler"]]
