"""The pool: few connections, each lent to one at a time, and none kept whose state nobody knows."""

import asyncio

import asyncpg
import pytest

from duly.store.connection import pool as module
from duly.store.connection.database import Database
from duly.store.connection.pool import Pool

PID = "select pg_backend_pid()"
SLEEP = "select pg_sleep(30)"


@pytest.fixture
async def pool(database_url):
    """A pool of two."""
    made = Pool(database_url, 2, {"command_timeout": 5.0})
    yield made
    made.terminate()


async def pid(pool: Pool) -> int:
    async with pool.acquire() as connection:
        found: int = await connection.fetchval(PID)
        return found


async def sleeps(database: Database) -> int:
    found: int = await database.fetchval(
        f"select count(*) from pg_stat_activity where query = '{SLEEP}' and state = 'active'"
    )
    return found


async def test_a_connection_is_kept_after_its_use(pool):
    assert await pid(pool) == await pid(pool)


async def test_connection_is_kept_after_a_refused_statement(pool):
    first = await pid(pool)
    with pytest.raises(asyncpg.DivisionByZeroError):
        async with pool.acquire() as connection:
            await connection.fetch("select 1 / 0")

    assert await pid(pool) == first


async def test_pool_drops_a_connection_to_a_read_only_server(pool):
    async with pool.acquire() as connection:
        await connection.execute("set default_transaction_read_only = on")
    first = await pid(pool)
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        async with pool.acquire() as connection:
            await connection.execute("create table nothing ()")

    assert await pid(pool) != first


async def test_pool_lends_each_connection_to_one_caller_and_the_next_waits(pool):
    async with pool.acquire() as first, pool.acquire() as second:
        assert first is not second
        waiting = asyncio.create_task(pid(pool))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        held = await second.fetchval(PID)

        await first.close()  # A connection that died is no reason to wait longer.

    assert await waiting == held


async def test_cancelled_caller_leaves_no_statement_and_no_connection_behind(pool, database):
    first = await pid(pool)

    async def sleep() -> None:
        async with pool.acquire() as connection:
            await connection.fetch(SLEEP)

    sleeping = asyncio.create_task(sleep())
    while not await sleeps(database):
        await asyncio.sleep(0.005)
    sleeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeping

    assert await sleeps(database) == 0
    assert await pid(pool) != first


async def test_transaction_left_open_is_not_passed_to_the_next_caller(pool):
    async with pool.acquire() as connection:
        await connection.execute("begin")

    async with pool.acquire() as another:
        assert not another.is_in_transaction()


async def test_connection_that_the_server_closed_is_not_lent(pool, database):
    first = await pid(pool)
    await database.fetch("select pg_terminate_backend($1, 5000)", first)
    await asyncio.sleep(0.05)

    assert await pid(pool) != first


async def test_connection_terminated_in_use_is_not_returned_to_the_pool(pool, database):
    async def leave() -> None:
        async with pool.acquire() as connection:
            await connection.fetch("select pg_terminate_backend(pg_backend_pid())")

    with pytest.raises((asyncpg.AdminShutdownError, asyncpg.ConnectionDoesNotExistError)):
        await leave()

    await pid(pool)


async def test_a_connection_is_replaced_now_and_then(pool, monkeypatch):
    monkeypatch.setattr(module, "_LENT_MAX", 3)

    used = [await pid(pool) for _ in range(6)]

    assert used[0] == used[1] == used[2] != used[3] == used[4] == used[5]


async def test_closed_pool_refuses_even_waiting_callers(pool, database):
    async with pool.acquire() as first, pool.acquire():
        waiting = asyncio.create_task(pid(pool))
        await asyncio.sleep(0)
        pool.terminate()
        assert first.is_closed()

    with pytest.raises(asyncpg.InterfaceError, match="closed"):
        await waiting
