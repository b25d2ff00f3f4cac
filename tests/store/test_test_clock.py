"""SQL's time moves with Python's, and only in a database made for tests."""

import pytest

from duly.domain.errors import DatabaseUnusable
from duly.store.connection import test_clock
from duly.store.connection.database import Database
from duly.store.schema.migrate import migrate
from tests.builders import a_ready_run
from tests.clock import START


@pytest.fixture
async def product(postgres):
    """A database as a user has it."""
    name = postgres.create()
    async with Database(postgres.url(name)) as opened:
        await migrate(opened)
        yield opened
    postgres.drop_database(name)


async def test_clock_for_tests_stops_until_it_is_advanced(database, clock):
    assert await database.read_clock() == START

    await clock.advance(90)

    assert (await database.read_clock() - START).total_seconds() == 90


async def test_a_step_moves_the_database_but_no_time_passes(database, clock):
    before = clock.monotonic()

    await clock.step(-600)

    assert (await database.read_clock() - START).total_seconds() == -600
    assert clock.monotonic() == before


async def test_the_clock_of_a_real_database_is_not_replaced(product):
    with pytest.raises(DatabaseUnusable, match=r"not a test database.*clock"):
        await test_clock.install(product, START)

    assert await product.read_clock() != START


async def test_database_in_use_is_not_marked_as_created_for_tests(product):
    await a_ready_run(product)

    with pytest.raises(DatabaseUnusable, match="has jobs"):
        await test_clock.mark_as_made_for_tests(product)
