"""No migration keeps a lock that writers wait for longer than a second; the long form is marked `proof`."""

import pytest

from duly.store.connection.database import Database
from duly.store.schema.locks import HOLD_MAX
from duly.store.schema.migrate import migrate
from tests.store.migration_locks import Measured, fill, measured, more_to_do


async def migrated_with(database: Database, jobs: int, attempts: int) -> Measured:
    """Migrate a database of that size, and give what was seen."""
    await migrate(database)
    await fill(database, jobs, attempts)
    async with more_to_do(database):
        return await measured(database)


async def test_migrations_keep_no_lock_for_a_second(empty):
    found = await migrated_with(empty, 2_000, 5_000)

    assert found.writes
    assert found.longest < HOLD_MAX.total_seconds(), found.held
    assert found.write_seconds < HOLD_MAX.total_seconds() + 0.2
    assert await empty.fetchval("select indisvalid from pg_index where indexrelid = 'duly.jobs_measured'::regclass")
    assert await empty.fetchval("select count(*) from duly.jobs where measured = 1") == 20


@pytest.mark.proof
@pytest.mark.timeout(7_200)
async def test_migrations_keep_no_lock_for_a_second_with_ten_million_jobs(empty):
    found = await migrated_with(empty, 10_000_000, 50_000_000)

    assert found.longest < HOLD_MAX.total_seconds(), found.held
