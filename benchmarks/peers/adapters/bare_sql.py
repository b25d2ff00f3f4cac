"""Bare SQL: the smallest honest queue on PostgreSQL, as an upper bound for Python on this machine. It is no product.

One table, claims in batches with SKIP LOCKED and a lease, the next batch fetched while this one runs, finished jobs moved to a
history in batches, one NOTIFY for each submit, COPY for many, and workers that sleep until the next is due. No retries,
priorities, limits or recovery: a scheduler pays for those on top.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import asyncpg

from benchmarks.peers.hits import hit
from benchmarks.peers.system import System

_BATCH = 1_000
_COPIED = 5_000
_SLEEP_SECONDS_MAX = 5.0
_SCHEMA = """
create table job (
    id bigint generated always as identity primary key, due timestamptz not null default now(),
    lease timestamptz, worker int, payload float8 not null) with (fillfactor = 80);
create index job_ready on job (due, id) where worker is null;
create table history (id bigint, due timestamptz, payload float8, finished timestamptz);
"""
_SUBMIT = "with submitted as (insert into job (payload) values ($1)) select pg_notify('job', '')"
_CLAIM = """
update job set worker = $1, lease = now() + interval '30 s' where id = any(array(
    select id from job where worker is null and due <= now() order by due, id limit $2 for update skip locked))
returning id, payload
"""
_FINISH = """
with finished as (delete from job where id = any($1::bigint[]) returning id, due, payload)
insert into history select id, due, payload, now() from finished
"""
_NEXT_DUE = "select extract(epoch from min(due) - now())::float8 from job where worker is null"

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]


class Adapter(System):
    """Statements on a table."""

    async def create(self) -> None:
        connection = await asyncpg.connect(self.url)
        await connection.execute(_SCHEMA)
        await connection.close()

    async def open(self) -> None:
        self._connection = await asyncpg.connect(self.url)

    async def close(self) -> None:
        await self._connection.close()

    async def submit_many(self, number: int, reference: float, due: float | None = None) -> None:
        at = datetime.fromtimestamp(due or 0, UTC)
        for start in range(0, number, _COPIED):
            rows = [(at, reference)] * min(_COPIED, number - start)
            async with self._connection.transaction():
                await self._connection.copy_records_to_table("job", records=rows, columns=("due", "payload"))
                await self._connection.execute("notify job")

    async def submit(self, reference: float) -> None:
        await self._connection.execute(_SUBMIT, reference)

    async def unfinished(self) -> int:
        count: int = await self._connection.fetchval("select count(*) from job")
        return count

    async def work(self) -> None:
        claiming, finishing, listening = [await asyncpg.connect(self.url) for _ in range(3)]
        notified = asyncio.Event()
        await listening.add_listener("job", lambda *_: notified.set())
        while True:
            notified.clear()
            await _work_off(claiming, finishing)
            seconds = await claiming.fetchval(_NEXT_DUE)
            with suppress(TimeoutError):
                async with asyncio.timeout(_sleep_seconds(seconds)):
                    await notified.wait()


def _sleep_seconds(until_due: float | None) -> float:
    return _SLEEP_SECONDS_MAX if until_due is None else min(_SLEEP_SECONDS_MAX, max(0.0, until_due))


async def _work_off(claiming: Connection, finishing: Connection) -> None:
    """Run all that is due; the next batch is claimed while this one runs, and finished while the next one does."""
    claim, finish = await claiming.prepare(_CLAIM), await finishing.prepare(_FINISH)
    finished: asyncio.Task[Any] | None = None
    rows: Sequence[Any] = await claim.fetch(os.getpid(), _BATCH)
    while rows:
        following = asyncio.ensure_future(claim.fetch(os.getpid(), _BATCH))
        for row in rows:
            await _noop(row["payload"])
        if finished:
            await finished
        finished = asyncio.ensure_future(finish.fetch([row["id"] for row in rows]))
        rows = await following
    if finished:
        await finished


async def _noop(payload: float) -> None:
    hit(payload)
