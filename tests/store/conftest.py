"""What tests of the schema share."""

import pytest

from duly.store.database import Database


@pytest.fixture
async def empty(postgres):
    """A database with nothing in it."""
    name = postgres.create()
    async with Database(postgres.url(name)) as opened:
        yield opened
    postgres.drop_database(name)
