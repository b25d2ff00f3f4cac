"""SQL's time in tests: `duly.clock_now()` reads a row that the test moves. Only in a database made for tests."""

from __future__ import annotations

from datetime import datetime

from duly.domain.errors import DatabaseUnusable
from duly.store.connection.database import Database

# A table, because the marker has to survive `create database … template`.
_MARK = "create table if not exists duly.made_for_tests ()"
_IS_MARKED = "select to_regclass('duly.made_for_tests') is not null"
_IS_USED = """
select exists (select from duly.idempotency_keys) or exists (select from duly.jobs) or exists (select from duly.attempts)
    or exists (select from duly.live_runs)
"""
_INSTALL = """
create unlogged table if not exists duly.test_clock (at timestamptz not null);
create or replace function duly.clock_now() returns timestamptz language sql volatile parallel safe
    as $$ select at from duly.test_clock $$;
grant select on duly.test_clock to duly_api;
"""
_MOVE = "with gone as (delete from duly.test_clock) insert into duly.test_clock (at) values ($1)"


async def mark_as_made_for_tests(database: Database) -> None:
    """Mark a migrated database as made for tests. Refused when it holds anything: it is in use."""
    if await database.fetchval(_IS_USED):
        raise DatabaseUnusable("this database has jobs, so it is not a test database; create an empty one")
    await database.execute(_MARK)


async def install(database: Database, at: datetime) -> None:
    """Replace the database clock by one that stays at `at` until moved. Refused unless the database is marked."""
    if not await database.fetchval(_IS_MARKED):
        raise DatabaseUnusable("this is not a test database, so its clock cannot be set")
    await database.execute(_INSTALL)
    await move(database, at)


async def move(database: Database, at: datetime) -> None:
    """Set the clock of a database made for tests."""
    await database.execute(_MOVE, at)
