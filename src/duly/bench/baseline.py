"""The baseline: the least that PostgreSQL and asyncpg need to do for a queue with a history, and nothing of Duly.

Insert ready rows, claim them by deleting them, COPY them into a history; in batches, on two connections. No lease, no fence,
no retry, no schedule: what is claimed when a process dies is lost. A scenario's rate against this one tells what Duly's
promises cost, on any machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import asyncpg
import msgspec

from duly.bench.report import rate
from duly.bench.scratch import BASELINE_SCHEMA

BATCH = 1_000
CONNECTIONS = 2
HINT = "duly_bench_baseline"
HISTORY_COLUMNS = ("run_id", "due_at", "started_at", "finished_at", "outcome")

# Every connection of the baseline has its schema as search path.
SCHEMA = f"""
drop schema if exists {BASELINE_SCHEMA} cascade;
create schema {BASELINE_SCHEMA};
create table ready (
    run_id uuid not null, due_at timestamptz not null, queue text not null, rank double precision not null,
    payload jsonb not null);
create unique index on ready (run_id);
create index on ready (queue, rank);
create table history (
    run_id uuid not null, due_at timestamptz not null, started_at timestamptz not null, finished_at timestamptz not null,
    outcome text not null);
create index on history (run_id);
"""
INSERT = """
insert into ready (run_id, due_at, queue, rank, payload)
select run_id, due_at, 'default', extract(epoch from due_at), '{}'
  from unnest($1::uuid[], $2::timestamptz[]) as rows(run_id, due_at)
"""
INSERT_ONE = """
insert into ready (run_id, due_at, queue, rank, payload)
values ($1, $2, 'default', extract(epoch from $2::timestamptz), '{}')
"""
CLAIM = """
delete from ready where ctid = any (array(
    select ctid from ready where queue = 'default' order by rank limit $1 for update skip locked))
returning run_id, due_at
"""

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]


class Bare(msgspec.Struct, frozen=True):
    """The rates of the baseline's parts: rows inserted, rows claimed and recorded, and both together, each per second."""

    insert_per_second: float
    drain_per_second: float
    cycle_per_second: float


class Baseline:
    """Runs the baseline, more than once, and sums up."""

    def __init__(self, url: str, rows: int) -> None:
        self._url = url
        self._rows = rows
        self._measured = 0
        self._insert_seconds = 0.0
        self._drain_seconds = 0.0

    async def run(self) -> None:
        """Take one full measurement."""
        async with opened(self._url, CONNECTIONS) as connections:
            await connections[0].execute(SCHEMA)
            batches = [batch_of(min(BATCH, self._rows - start)) for start in range(0, self._rows, BATCH)]
            self._insert_seconds += await _timed(connections, lambda connection: _insert(connection, batches))
            await connections[0].execute("analyze ready")
            self._drain_seconds += await _timed(connections, _drain)
            kept = await connections[0].fetchval("select count(distinct run_id) from history")
            assert kept == self._rows, kept
            self._measured += self._rows

    @property
    def bare(self) -> Bare:
        """The measurements so far."""
        return Bare(
            rate(self._measured, self._insert_seconds),
            rate(self._measured, self._drain_seconds),
            rate(self._measured, self._insert_seconds + self._drain_seconds),
        )


@asynccontextmanager
async def opened(url: str, number: int) -> AsyncIterator[Sequence[Connection]]:
    """Open bare connections, without the planner's taste for scanning tables it thinks empty."""
    settings = {"search_path": BASELINE_SCHEMA, "enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off"}
    connections: list[Any] = [await asyncpg.connect(url, server_settings=settings) for _ in range(number)]
    try:
        yield connections
    finally:
        for connection in connections:
            connection.terminate()


async def _timed(connections: Sequence[Connection], work: Callable[[Connection], Awaitable[None]]) -> float:
    began = perf_counter()
    await asyncio.gather(*(work(connection) for connection in connections))
    return perf_counter() - began


def batch_of(size: int) -> tuple[list[UUID], list[datetime]]:
    """Build the rows of one insert."""
    now = datetime.now(UTC)
    return [uuid4() for _ in range(size)], [now] * size


async def _insert(connection: Connection, batches: list[tuple[list[UUID], list[datetime]]]) -> None:
    while batches:
        await connection.execute(INSERT, *batches.pop())


async def _drain(connection: Connection) -> None:
    while True:
        async with connection.transaction():
            claimed = await connection.fetch(CLAIM, BATCH)
            if not claimed:
                return
            await record(connection, claimed)


async def record(connection: Connection, claimed: Sequence[asyncpg.Record]) -> int:
    """Copy what was claimed into the history. Returns how many."""
    now = datetime.now(UTC)
    records = [(run_id, due_at, now, now, "succeeded") for run_id, due_at in claimed]
    await connection.copy_records_to_table("history", columns=HISTORY_COLUMNS, records=records)
    return len(records)


async def insert_one_by_one(connection: Connection, number: int) -> list[float]:
    """Insert rows, each in a transaction of its own. Returns how long each took."""
    spans = []
    for _ in range(number):
        began = perf_counter()
        await connection.execute(INSERT_ONE, uuid4(), datetime.now(UTC))
        spans.append(perf_counter() - began)
    return spans


async def round_trips(url: str, number: int, pause: Callable[[], Awaitable[None]]) -> list[float]:
    """Insert a row and notify; another connection listens and claims it by deleting it. Returns how long each way took."""
    async with opened(url, 2) as (sender, receiver):
        await sender.execute(SCHEMA)
        rung, spans = asyncio.Event(), []
        await receiver.add_listener(HINT, lambda *_: rung.set())
        for _ in range(number):
            rung.clear()
            began = perf_counter()
            await sender.execute(INSERT_ONE, uuid4(), datetime.now(UTC))
            await sender.execute("select pg_notify($1, '')", HINT)
            await rung.wait()
            assert await receiver.fetch(CLAIM, BATCH)
            spans.append(perf_counter() - began)
            await pause()
        return spans
