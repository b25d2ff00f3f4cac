"""What every test shares: a database of its own, and a clock that moves both Python's time and SQL's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from psycopg import sql

from duly.store import test_clock
from duly.store.database import Database
from duly.store.migrate import migrate
from tests.clock import START, ManualClock

if TYPE_CHECKING:
    from tests.postgres import Postgres  # A plugin: pytest imports it itself, to rewrite its assertions.

pytest_plugins = ["tests.plugins.budget", "tests.postgres"]

TEMPLATE = "test_template"


async def make_template(url: str) -> None:
    """Bring a fresh database to where every test begins."""
    async with Database(url) as database:
        await migrate(database)
        await test_clock.mark_as_made_for_tests(database)
        await test_clock.install(database, START)


@pytest.fixture(scope="session")
def template(postgres: Postgres) -> str:
    """A migrated database, with a clock that tests move."""
    postgres.create_database(TEMPLATE)
    asyncio.run(make_template(postgres.url(TEMPLATE)))
    return TEMPLATE


@pytest.fixture
def database_url(request, postgres: Postgres, template: str):
    """The address of a database for this test alone."""
    name = f"test_of_{abs(hash(request.node.nodeid)):x}"
    # Copying files takes 20 ms, five times less than writing the copy to the log.
    statement = sql.SQL("create database {} template {} strategy file_copy")
    postgres.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands until the test advances it."""
    return ManualClock()


@pytest.fixture
async def database(database_url: str, clock: ManualClock):
    """An open database for this test alone."""
    async with Database(database_url, size_max=8, clock=clock) as opened:
        clock.moves(opened)
        yield opened
