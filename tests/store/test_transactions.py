"""Transactions of several statements: whoever is frozen in the middle of one holds its locks for a while, and not for ever."""

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import asyncpg
import psycopg
import pytest

from duly.moves.submit import submit
from duly.store.connection import transactions
from duly.store.connection.database import Database, Unavailable
from duly.store.connection.session import Sessions
from duly.store.connection.together import together
from tests.builders import a_key, a_submission, an_active_schedule, counts
from tests.postgres import scratch_server
from tests.store import pgbouncer

SETTING = "show idle_in_transaction_session_timeout"
LOCK = "select from duly.shards where shard = 1 for update"


@pytest.fixture
def impatient(monkeypatch):
    """Nobody may be idle for long."""
    monkeypatch.setattr(transactions, "IDLE_MAX", timedelta(seconds=0.1))


async def in_a_transaction(database, story):
    async with database.transaction() as connection:
        return await story(connection)


async def in_a_session(database, story):
    async with Sessions(database) as sessions, sessions.open(1) as session:
        return await story(session)


async def in_a_look(database, story):
    async with Sessions(database) as sessions, sessions.look(timeout=timedelta(seconds=5)) as session:
        return await story(session)


WAYS = (in_a_transaction, together, in_a_session, in_a_look)
LOCKING = (in_a_transaction, together)  # The API's role locks what its functions lock, and no row by itself.


def frozen_after(url: str, statement: str):
    """Give a story that runs one statement and then stands still, with all of its process, until the server has ended it."""

    async def story(connection):
        await connection.fetch(statement)
        stand_still(url, await connection.fetchval("select pg_backend_pid()"))
        await connection.fetch("select 1")

    return story


def stand_still(url: str, pid: int) -> None:
    """Let nothing happen here while a process of the server lives."""
    ended_by = time.monotonic() + 10
    with psycopg.connect(url, autocommit=True) as watcher:
        while watcher.execute("select from pg_stat_activity where pid = %s", [pid]).fetchall():
            assert time.monotonic() < ended_by, "nobody has ended it"
            time.sleep(0.01)


@pytest.fixture
async def watcher(database):
    """Somebody who looks at the server, by another way."""
    connection = await asyncpg.connect(database.url)
    yield connection
    await connection.close()


@pytest.mark.parametrize("way", LOCKING)
async def test_story_15_frozen_transaction_releases_its_locks(database, watcher, impatient, way):
    blocker = asyncio.Event()

    async def story(connection):
        await connection.fetch(LOCK)
        blocker.set()
        await asyncio.Event().wait()

    frozen = asyncio.create_task(way(database, story))
    async with asyncio.timeout(10):
        await blocker.wait()
        await watcher.fetch(LOCK)  # Which waits for it.

    assert not frozen.done(), "it knows of nothing"
    frozen.cancel()
    await asyncio.gather(frozen, return_exceptions=True)


@pytest.mark.parametrize("way", WAYS)
async def test_frozen_transaction_is_reported_as_unavailable_and_may_be_retried(database, impatient, way):
    with pytest.raises(Unavailable):
        await way(database, frozen_after(database.url, "select 1"))

    assert await way(database, lambda connection: connection.fetchval("select 7")) == 7


@pytest.mark.parametrize("way", LOCKING)
async def test_a_failure_that_was_swallowed_is_no_success(database, way):
    async def story(connection):
        await connection.fetch("delete from duly.shards")
        with suppress(asyncpg.DivisionByZeroError):
            await connection.fetch("select 1 / 0")

    with pytest.raises(asyncpg.InFailedSQLTransactionError, match="rolled back"):
        await way(database, story)

    assert await database.fetchval("select count(*) from duly.shards") == 64


async def test_frozen_transaction_is_rolled_back(database, impatient):
    with pytest.raises(Unavailable):
        await in_a_transaction(database, frozen_after(database.url, "delete from duly.shards"))

    assert await database.fetchval("select count(*) from duly.shards") == 64


async def test_a_part_of_it_that_is_frozen_ends_the_whole(database, impatient):
    async def story(inside):
        async with inside.transaction():
            await frozen_after(database.url, "select 1")(inside)

    for way in (together, in_a_session):
        with pytest.raises(Unavailable):
            await way(database, story)


@pytest.mark.parametrize("way", WAYS)
async def test_the_limit_ends_with_the_transaction(database, way):
    assert await way(database, lambda connection: connection.fetchval(SETTING)) == "10s"
    assert await database.fetchval(SETTING) == "0"


async def test_a_callers_own_transaction_may_be_idle_for_as_long_as_the_caller_likes(database, watcher, impatient):
    async with watcher.transaction():
        await submit(watcher, a_submission(), key=a_key())
        await an_active_schedule(watcher)
        assert await watcher.fetchval(SETTING) == "0"

    assert await counts(database) == {"ready": 1, "timers": 1}


@asynccontextmanager
async def pooled(folder: Path):
    """A database behind a pooler in transaction mode, which hands its four connections out in turn."""
    with scratch_server(folder) as server, pgbouncer.pgbouncer(server) as through:
        url = f"postgresql:///duly?host={through}&port={pgbouncer.PORT}&user=duly"
        async with Database(url, pooler=True) as database:
            yield database, server.url()


@pytest.mark.skipif(not Path(pgbouncer.PROGRAM).exists(), reason="needs the Debian package pgbouncer")
async def test_behind_a_pooler_it_is_the_same_and_the_next_client_finds_nothing_of_it(tmp_path, impatient):
    async with pooled(tmp_path) as (database, straight):
        with pytest.raises(Unavailable):
            await in_a_transaction(database, frozen_after(straight, "select 1"))

        assert await in_a_transaction(database, lambda connection: connection.fetchval(SETTING)) == "100ms"
        assert [await database.fetchval(SETTING) for _ in range(8)] == ["0"] * 8
