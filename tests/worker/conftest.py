"""A worker lives in real time, so here the database keeps its own clock."""

import asyncio
import os
from pathlib import Path

import psycopg
import pytest

from duly.store.database import Database
from duly.store.migrate import migrate
from tests.postgres import Postgres
from tests.worker.stories import Faulty

ROOT = Path(__file__).parents[2]
TABLES = """
select format('duly.%I', relname) from pg_class
 where relnamespace = 'duly'::regnamespace and relkind in ('r', 'p') and not relispartition
   and relname not in ('migrations', 'shards')
"""
OTHERS = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


async def _migrate(url: str) -> None:
    async with Database(url) as database:
        await migrate(database)


@pytest.fixture(scope="session")
def real_time(postgres: Postgres) -> str:
    """The address of a migrated database whose clock nobody moves."""
    url = postgres.url(postgres.create())
    asyncio.run(_migrate(url))
    return url


@pytest.fixture
def url(real_time: str) -> str:
    """The address of an empty database in real time."""
    with psycopg.connect(real_time, autocommit=True) as connection:
        connection.execute(OTHERS)
        for (table,) in connection.execute(TABLES).fetchall():
            if table != "duly.audit":  # Nobody can delete what it holds, and nothing here looks at it.
                connection.execute(f"delete from {table}")
    return real_time


@pytest.fixture
async def store(url: str):
    """The test's own way into that database."""
    async with Database(url, size_max=4) as database:
        await database.read_clock()
        yield database


@pytest.fixture
async def faulty(url: str):
    """A way into that database which fails when told."""
    async with Faulty(url) as database:
        await database.read_clock()
        yield database


@pytest.fixture(autouse=True)
def _children_find_our_apps(monkeypatch):
    """And the engine beside them: in a copy of the tree, what is installed is another one."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{ROOT}")
