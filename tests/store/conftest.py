"""Fixtures that tests of the schema share; and the oldest PostgreSQL we support, for tests that are run again there."""

import pytest

from duly.store.connection.database import Database
from tests.conftest import Shared
from tests.kept import Kept
from tests.postgres import Postgres


@pytest.fixture
async def empty(postgres):
    """A database with nothing in it."""
    name = postgres.create()
    async with Database(postgres.url(name)) as opened:
        yield opened
    postgres.drop_database(name)


@pytest.fixture(scope="session")
def oldest(postgres_15: Postgres, template_15: str):
    """The database that tests share on PostgreSQL 15."""
    shared = Shared(postgres_15, template_15)
    yield shared
    shared.close()


@pytest.fixture(scope="session")
async def kept_on_oldest(oldest: Shared):
    """The connections to the first that tests share."""
    kept = Kept(oldest.url)
    yield kept
    await kept.close()
