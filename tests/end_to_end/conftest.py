"""A database in real time."""

import asyncio
from itertools import count

import pytest

from duly.store.connection.database import Database
from duly.store.schema.migrate import migrate

_numbers = count(1)


@pytest.fixture
def url(postgres):
    """The address of a database for this test alone, on the shared server."""
    name = f"end_to_end_{next(_numbers)}"
    postgres.create_database(name)
    asyncio.run(_migrated(postgres.url(name)))
    yield postgres.url(name)
    postgres.drop_database(name)


async def _migrated(url: str) -> None:
    async with Database(url) as database:
        await migrate(database)


@pytest.fixture
async def store(url: str):
    """The test's own way into that database."""
    async with Database(url) as database:
        yield database
