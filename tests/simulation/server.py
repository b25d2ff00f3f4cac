"""The real PostgreSQL behind the simulation: one connection, on which statements run one after another at the virtual moment."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import asyncpg

from duly.store import embedded, test_clock
from duly.store.database import Database
from duly.store.migrate import migrate
from duly.store.statements import load

START = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)

# A setting of the one session that there is, because that is cheaper to move than the row of `store/test_clock.py`.
_CLOCK = """
create or replace function duly.clock_now() returns timestamptz language sql volatile parallel safe
    as $$ select current_setting('duly.simulated_at')::timestamptz $$
"""
# Made by the first seed, they would be there for the second, which then would not be the same story.
_PARTITIONS = "select duly.make_partitions_v1($1, $2)"
_PARTITION_DAYS = 10
_SET_CLOCK = "select set_config('duly.simulated_at', $1, false)"
_BYTES_MAX = 262_144
_TABLES = """
select oid::regclass::text from pg_class
 where relnamespace = 'duly'::regnamespace and relkind in ('r', 'p') and not relispartition
   and relname not in ('migrations', 'functions', 'made_for_tests', 'shards')
   and relname <> 'audit'  -- It takes no delete, and nothing reads it.
"""


def statement_names() -> dict[str, str]:
    """Name each statement of the store by its text: `ready.claim`, `leased.settle`."""
    boxes = sorted(Path(str(entry)).stem for entry in files("duly.store").joinpath("sql").iterdir())
    return {text: f"{box}.{name}" for box in boxes for name, text in load(box).items()}


class Server:
    """Runs statements at a moment of database time."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(_prepare(url))
        # Every statement there is stays prepared: were they to take turns, each turn would cost two more talks.
        connecting = asyncpg.connect(url, statement_cache_size=1_000, max_cached_statement_lifetime=0)
        self._connection: Any = self._loop.run_until_complete(connecting)
        self._socket = _socket_of(self._connection)
        os.set_blocking(self._socket, True)
        self._at: datetime | None = None
        self._tables = [row[0] for row in self._drive(self._connection.fetch(_TABLES))]

    def close(self) -> None:
        """Hang up."""
        os.set_blocking(self._socket, False)
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()

    def fetch(self, at: datetime, query: str, args: Sequence[Any]) -> list[Any]:
        """Run one statement as a transaction of its own."""
        rows: list[Any] = self._drive(self._ask(at, query, args))
        return rows

    async def _ask(self, at: datetime, query: str, args: Sequence[Any]) -> Any:
        if at != self._at:
            await self._connection.fetch(_SET_CLOCK, at.isoformat())
            self._at = at
        return await self._connection.fetch(query, *args)

    def execute(self, script: str) -> None:
        """Run a script outside of simulated time."""
        self._drive(self._connection.execute(script))

    def _drive(self, talk: Coroutine[Any, Any, Any]) -> Any:
        """Take a talk with the server to its end, which waits for nothing else: a loop for it is a fifth of a seed's time."""
        try:
            while True:
                answer = talk.send(None)
                answer._asyncio_future_blocking = False
                while not answer.done():
                    self._hear()
        except StopIteration as end:
            return end.value

    def _hear(self) -> None:
        if not (said := os.read(self._socket, _BYTES_MAX)):
            raise ConnectionError("the server hung up")
        self._connection._protocol.data_received(said)

    def reset(self) -> None:
        """Empty every box. Deleting and vacuuming a few rows is ten times cheaper than truncating forty files."""
        self.execute("; ".join(f"delete from {table}" for table in self._tables))
        self.execute("update duly.shards set holder = null, epoch = 0; select setval('duly.fences', 1, false)")
        self.execute("vacuum " + ", ".join((*self._tables, "duly.shards")))


def _socket_of(connection: Any) -> int:
    socket: int = connection._transport.get_extra_info("socket").fileno()
    return socket


async def _prepare(url: str) -> None:
    async with Database(url) as database:
        await migrate(database)
        await test_clock.mark_as_made_for_tests(database)
        await database.execute(_CLOCK)
        await database.fetchval(_PARTITIONS, START.date(), _PARTITION_DAYS)


@contextmanager
def scratch_servers(folder: Path, count: int) -> Iterator[list[str]]:
    """Run one scratch cluster with `count` databases, and give their addresses. Nothing in it happens by itself."""
    settings = {"shared_buffers": "64MB", "autovacuum": "off"}
    with embedded.start(folder, durable=False, settings=settings) as cluster:
        names = [f"simulation_{number}" for number in range(count)]
        asyncio.run(_create(cluster.url, names))
        yield [cluster.url.replace("postgresql:///duly?", f"postgresql:///{name}?") for name in names]


async def _create(url: str, names: list[str]) -> None:
    connection = await asyncpg.connect(url)
    for name in names:
        await connection.execute(f"create database {name}")
    await connection.close()


def moment(seconds: float) -> datetime:
    """Give the moment so many seconds after the simulation began, to the microsecond."""
    return START + timedelta(seconds=seconds)
