"""A worker lives in real time, so here the database keeps its own clock."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from duly.store.connection.database import Database
from duly.store.schema.migrate import migrate
from tests.postgres import Postgres
from tests.worker.stories import Faulty

ROOT = Path(__file__).parents[2]
# Nobody can delete what the audit holds, and nothing here looks at it.
TABLES = """
select format('duly.%I', relname) from pg_class
 where relnamespace = 'duly'::regnamespace and relkind in ('r', 'p') and not relispartition
   and relname not in ('migrations', 'functions', 'shards', 'audit')
"""
OTHERS = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


async def _migrate(url: str) -> None:
    async with Database(url) as database:
        await migrate(database)


class RealTime:
    """A migrated database whose clock nobody moves; a connection is kept to empty it, for a new one takes ten times as long."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection: psycopg.Connection | None = None
        self._emptying = b""

    def empty(self) -> None:
        """End all others, and delete what they have left."""
        try:
            self._delete_all()
        except psycopg.OperationalError:  # A test has ended us, too.
            self.close()
            self._delete_all()

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _delete_all(self) -> None:
        if self._connection is None:
            self._connection = psycopg.connect(self.url, autocommit=True)
            tables = [table for (table,) in self._connection.execute(TABLES)]
            self._emptying = "; ".join(f"delete from {table}" for table in tables).encode()
        self._connection.execute(OTHERS)
        self._connection.execute(self._emptying)


@pytest.fixture(scope="session")
def real_time(postgres: Postgres) -> Iterator[RealTime]:
    """The database that tests in real time share."""
    url = postgres.url(postgres.create())
    asyncio.run(_migrate(url))
    opened = RealTime(url)
    yield opened
    opened.close()


@pytest.fixture
def url(real_time: RealTime) -> str:
    """The address of an empty database in real time."""
    real_time.empty()
    return real_time.url


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
