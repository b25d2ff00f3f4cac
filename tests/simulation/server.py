"""The real PostgreSQL behind the simulation: one connection, on which statements run one after another at the virtual moment.

Before each statement the clock is set, and in the same breath the boxes are looked at as the statement before has left them. Both
travel together with the statement itself, so neither costs a talk of its own; see conservation.py for what is made of the look.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import asyncpg

from duly.postgres import embedded
from duly.store.connection import test_clock
from duly.store.connection.database import Database
from duly.store.connection.statements import load
from duly.store.schema.migrate import migrate

START = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)

# A setting of the one session that there is, because that is cheaper to move than the row of `store/connection/test_clock.py`.
_CLOCK = """
create or replace function duly.clock_now() returns timestamptz language sql volatile parallel safe
    as $$ select current_setting('duly.simulated_at')::timestamptz $$
"""
# Made by the first seed, they would be there for the second, which then would not be the same story.
_PARTITIONS = "select duly.create_partitions($1, $2)"
_PARTITION_DAYS = 10
_BOXES = """(
    select run_id, job_id, scheduled_at, 'timers' as box from duly.timers where run_id is not null
    union all select run_id, job_id, scheduled_at, 'blocked' from duly.blocked
    union all select run_id, job_id, scheduled_at, 'ready' from duly.ready
    union all select run_id, job_id, scheduled_at, 'leased' from duly.leased
    union all select run_id, job_id, scheduled_at, 'dead' from duly.dead) as boxes"""
# A sum over all rows says whether they are of the same runs as before, each of them once; where it has changed they are listed.
_LOOK = f"""
prepare a_look (text, text) as
select set_config('duly.simulated_at', $1, false), summed.up,
       case when summed.up <> $2
            then (select string_agg(concat_ws('|', box, run_id, job_id, scheduled_at), e'\\n') from {_BOXES}) end
  from (select count(*) || ' ' || coalesce(bit_xor(uuid_hash_extended(run_id, 0)), 0) as up from {_BOXES}) as summed
"""
_NO_RUNS = b"0 0"
_ALONE = "vacuum"
_BYTES_MAX = 262_144
_TABLES = """
select oid::regclass::text from pg_class
 where relnamespace = 'duly'::regnamespace and relkind in ('r', 'p') and not relispartition
   and relname not in ('migrations', 'functions', 'made_for_tests', 'shards')
   and relname <> 'audit'  -- It takes no delete, and nothing reads it.
"""


@cache
def statement_names() -> dict[str, str]:
    """Name each statement of the store by its text: `ready.claim`, `leased.settle`. Both ways to claim have one name."""
    folder = Path(str(files("duly.store").joinpath("sql")))
    boxes = sorted(path.relative_to(folder).with_suffix("") for path in folder.rglob("*.sql"))
    return {
        text: f"{box.name}.{name}".replace("ready.claim_all", "ready.claim")
        for box in boxes
        for name, text in load(box.as_posix()).items()
    }


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


_EXECUTE = _message(b"E", b"\0\0\0\0\0")
_SYNC = _message(b"S", b"")


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
        self._protocol = _protocol_of(self._connection)
        self._transport = _transport_of(self._connection)
        self._transport.write = self._say
        self._ahead = b""  # what goes out before the next thing that the driver says
        self._answer_of_look: bytes | None = None  # what has come of a look, while one is on its way
        self._end_of_look = b"C"
        self._tables = [row[0] for row in self._drive(self._connection.fetch(_TABLES))]
        self._prepared: dict[str, Any] = {}
        # Otherwise which plan is taken would rest on how often a statement has run before, in other seeds.
        self.execute("set plan_cache_mode = force_generic_plan")
        self.execute(_LOOK)
        self._at: datetime | None = None
        self._summed = _NO_RUNS
        self._slots: list[str] | None = None

    def close(self) -> None:
        """Hang up."""
        os.set_blocking(self._socket, False)
        del self._transport.write
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()

    def fetch(self, at: datetime, query: str, args: Sequence[Any], *, looks: bool = False) -> list[Any]:
        """Run one statement as a transaction of its own; with `looks` after a look at the boxes, which `changed_places` tells."""
        prepared = self._prepared.get(query)
        if prepared is None:
            prepared = self._prepared[query] = self._drive(self._connection._get_statement(query, None))
        if looks or at != self._at:
            self._begin_look(at, is_alone=query.startswith(_ALONE))
        try:
            rows: list[Any] = self._drive(self._protocol.bind_execute(prepared, args, "", 0, False, None))
        except asyncpg.PostgresError:
            self._at = None  # The clock went back with the rest.
            raise
        return rows

    def changed_places(self) -> list[str] | None:
        """Give what is in the boxes, `box|run|job|moment`, if a look since the last call found others there than before."""
        slots, self._slots = self._slots, None
        return slots

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
        if self._answer_of_look is not None:
            said = self._hear_look(said)
        if said:
            self._protocol.data_received(said)

    def _say(self, said: bytes) -> None:
        """Send what the driver says, behind what is to go out before it: one wake-up of the server, and one of ours."""
        os.write(self._socket, b"".join((self._ahead, said)))
        self._ahead = b""

    def _begin_look(self, at: datetime, *, is_alone: bool) -> None:
        """Let the look and the clock go ahead of a statement, in its transaction unless that wants one for itself.

        The driver knows nothing of it: it is ours to speak and to hear.
        """
        self._at = at
        arguments = (at.isoformat().encode(), self._summed)
        values = b"".join(len(value).to_bytes(4, "big") + value for value in arguments)
        bind = b"\0a_look\0\0\0\0\2" + values + b"\0\0"
        self._ahead = _message(b"B", bind) + _EXECUTE + (_SYNC if is_alone else b"")
        self._end_of_look = b"Z" if is_alone else b"C"
        self._answer_of_look = b""

    def _hear_look(self, said: bytes) -> bytes:
        """Take the answer to a look out of what was said. Gives what comes after it."""
        assert self._answer_of_look is not None
        heard, begin = self._answer_of_look + said, 0
        while len(heard) >= begin + 5 and len(heard) >= (end := begin + 1 + _number(heard, begin + 1)):
            kind = heard[begin : begin + 1]
            assert kind != b"E", heard[begin:end]
            if kind == b"D":
                self._note_look(*_columns(heard[begin + 5 : end]))
            begin = end
            if kind == self._end_of_look:
                self._answer_of_look = None
                return heard[begin:]
        self._answer_of_look = heard[begin:]
        return b""

    def _note_look(self, _: bytes | None, summed: bytes | None, listed: bytes | None) -> None:
        assert summed is not None
        if summed != self._summed:
            self._slots = (listed or b"").decode().splitlines()
        self._summed = summed

    def reset(self) -> None:
        """Empty every box. Deleting and vacuuming a few rows is ten times cheaper than truncating forty files."""
        self._loop._ready.clear()  # type: ignore[attr-defined]  # What the driver has asked of a loop that nobody runs.
        self._summed, self._slots = _NO_RUNS, None
        self.execute("; ".join(f"delete from {table}" for table in self._tables))
        self.execute("update duly.shards set holder = null, epoch = 0; select setval('duly.fences', 1, false)")
        self.execute("vacuum " + ", ".join((*self._tables, "duly.shards")))


def _number(heard: bytes, begin: int) -> int:
    return int.from_bytes(heard[begin : begin + 4], "big", signed=True)


def _columns(body: bytes) -> list[bytes | None]:
    """Read the columns of a row."""
    columns: list[bytes | None] = []
    begin = 2
    while begin < len(body):
        length = _number(body, begin)
        columns.append(body[begin + 4 : begin + 4 + length] if length >= 0 else None)
        begin += 4 + max(0, length)
    return columns


def _transport_of(connection: Any) -> Any:
    return connection._transport


def _protocol_of(connection: Any) -> Any:
    return connection._protocol


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
