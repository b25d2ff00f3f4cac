"""pgqueuer: asyncpg, large batches of dequeued jobs; finished jobs move to its log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import time

import asyncpg
import psycopg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, SyncPsycopgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries, SyncQueries

from benchmarks.peers.hits import hit
from benchmarks.peers.system import System

_BATCH = 5_000
_DEQUEUED = 500


class Adapter(System):
    """pgqueuer by its queries and its queue manager."""

    async def create(self) -> None:
        connection = await asyncpg.connect(self.url)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    async def open(self) -> None:
        self._connection = await asyncpg.connect(self.url)
        self._probe = await asyncpg.connect(self.url)
        self._queries = Queries(AsyncpgDriver(self._connection))

    async def close(self) -> None:
        await self._connection.close()
        await self._probe.close()

    async def submit_many(self, number: int, reference: float, due: float | None = None) -> None:
        payload = repr(reference).encode()
        for start in range(0, number, _BATCH):
            size = min(_BATCH, number - start)
            after = None if due is None else [timedelta(seconds=due - time())] * size
            await self._queries.enqueue(["noop"] * size, [payload] * size, [0] * size, after)

    async def submit(self, reference: float) -> None:
        await self._queries.enqueue("noop", repr(reference).encode())

    @contextmanager
    def sync(self) -> Iterator[Callable[[], object]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            queries = SyncQueries(SyncPsycopgDriver(connection))
            yield lambda: queries.enqueue("noop", b"0.0")

    async def unfinished(self) -> int:
        count: int = await self._probe.fetchval("select count(*) from pgqueuer")
        return count

    async def work(self) -> None:
        pgq = PgQueuer(AsyncpgDriver(await asyncpg.connect(self.url)))

        @pgq.entrypoint("noop")  # type: ignore[untyped-decorator]
        async def noop(job: Job) -> None:
            assert job.payload
            hit(float(job.payload))

        await pgq.run(batch_size=_DEQUEUED)
