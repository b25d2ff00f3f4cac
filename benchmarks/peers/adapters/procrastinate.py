"""procrastinate: its asynchronous psycopg connector, concurrent workers that are notified; finished jobs are kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import procrastinate
import psycopg

from benchmarks.peers.hits import hit
from benchmarks.peers.system import System

_BATCH = 5_000
_CONCURRENCY = 20
_UNFINISHED = "select count(*) from procrastinate_jobs where status in ('todo', 'doing')"


class Adapter(System):
    """procrastinate by its app."""

    drained_max = 5_000

    def __init__(self) -> None:
        super().__init__()
        logging.getLogger("procrastinate").setLevel(logging.ERROR)
        self._app = _app(procrastinate.PsycopgConnector(conninfo=self.url, min_size=4, max_size=20))

    async def create(self) -> None:
        async with self._app.open_async():
            await self._app.schema_manager.apply_schema_async()

    async def open(self) -> None:
        await self._app.open_async()
        self._probe = await psycopg.AsyncConnection.connect(self.url, autocommit=True)

    async def close(self) -> None:
        await self._app.close_async()
        await self._probe.close()

    async def submit_many(self, number: int, reference: float, due: float | None = None) -> None:
        at = None if due is None else datetime.fromtimestamp(due, UTC)
        for start in range(0, number, _BATCH):
            batch = [{"ref": reference}] * min(_BATCH, number - start)
            await self._app.tasks["noop"].configure(schedule_at=at).batch_defer_async(*batch)

    async def submit(self, reference: float) -> None:
        await self._app.tasks["noop"].defer_async(ref=reference)

    @contextmanager
    def sync(self) -> Iterator[Callable[[], object]]:
        app = _app(procrastinate.SyncPsycopgConnector(conninfo=self.url))
        with app.open():
            yield lambda: app.tasks["noop"].defer(ref=0.0)

    async def unfinished(self) -> int:
        [count] = await (await self._probe.execute(_UNFINISHED)).fetchone() or [0]
        return int(count)

    async def work(self) -> None:
        async with self._app.open_async():
            await self._app.run_worker_async(concurrency=_CONCURRENCY, fetch_job_polling_interval=1.0)


def _app(connector: procrastinate.BaseConnector) -> procrastinate.App:
    app = procrastinate.App(connector=connector)

    @app.task(name="noop", pass_context=False)  # type: ignore[untyped-decorator]
    async def noop(ref: float) -> None:
        hit(ref)

    return app
