"""A worker lives in real time, so here the database keeps its own clock."""

import asyncio
from itertools import count
from pathlib import Path

import pytest
from psycopg import sql

from duly.store.database import Database
from duly.store.migrate import migrate
from tests.postgres import Postgres
from tests.worker.stories import Faulty

ROOT = Path(__file__).parents[2]
TEMPLATE = "template_in_real_time"
_numbers = count(1)


async def make_template(url: str) -> None:
    """Bring a fresh database to today's schema."""
    async with Database(url) as database:
        await migrate(database)


@pytest.fixture(scope="session")
def real_time(postgres: Postgres) -> str:
    """A migrated database whose clock nobody moves."""
    postgres.create_database(TEMPLATE)
    asyncio.run(make_template(postgres.url(TEMPLATE)))
    return TEMPLATE


@pytest.fixture
def url(postgres: Postgres, real_time: str):
    """The address of a database in real time, for this test alone."""
    name = f"real_time_{next(_numbers)}"
    statement = sql.SQL("create database {} template {} strategy file_copy")
    postgres.execute(statement.format(sql.Identifier(name), sql.Identifier(real_time)))
    yield postgres.url(name)
    postgres.drop_database(name)


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
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
