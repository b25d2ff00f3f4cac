"""Fixtures that every test shares: a clean database, and a clock that moves both Python's time and SQL's."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

from duly.store.boxes import ready
from duly.store.connection import test_clock
from duly.store.connection.database import Database
from duly.store.schema.migrate import migrate
from tests.clock import START, ManualClock
from tests.kept import KEPT, Kept, a_keyring

if TYPE_CHECKING:
    from tests.postgres import Postgres  # A plugin: pytest imports it itself, to rewrite its assertions.

pytest_plugins = ["tests.plugins.budget", "tests.plugins.no_server", "tests.postgres"]

TEMPLATE = "test_template"
SHARED = "test_shared"
# Changes with any change of the schema, and with a migration that is more or less.
SCHEMA = """
select md5(string_agg(thing, ',' order by thing)) from (
    select concat('relation ', oid, ' ', xmin) from pg_class where relnamespace = 'duly'::regnamespace
    union all select concat('function ', oid, ' ', xmin) from pg_proc where pronamespace = 'duly'::regnamespace
    union all select concat('migration ', version) from duly.migrations) as things (thing)
"""
TABLES = """
select format('duly.%I', relname) from pg_class
 where relnamespace = 'duly'::regnamespace and relkind in ('r', 'p') and not relispartition
   and relname not in ('migrations', 'functions', 'made_for_tests', 'shards')
"""
# A function, because its plans are kept: that halves the time.
EMPTYING = "tests.empty() returns void language plpgsql"
EMPTY = "select tests.empty()"
OTHERS = f"""
select pg_terminate_backend(pid) from pg_stat_activity
 where datname = current_database() and backend_type = 'client backend' and application_name <> '{KEPT}'
"""


def pytest_configure() -> None:
    """Heed Ctrl-C, and let child processes heed it, also where a shell started the tests in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Search nothing for garbage while tests are collected: all of it stays, and searching takes as long as collecting."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


class Shared:
    """One database for all tests, emptied before each: that takes 3 ms, a copy of the template 20 to 300."""

    def __init__(self, postgres: Postgres, template: str) -> None:
        self._postgres = postgres
        self._template = template
        self.url = postgres.url(SHARED)
        self._create()

    def empty(self) -> None:
        """Bring it to where every test begins; after a test that changed the schema, from scratch."""
        try:
            if self._read_schema() == self._schema:
                self.delete_all()
                return
        except psycopg.Error:
            pass
        self.close()
        self._postgres.drop_database(SHARED)
        self._create()

    def delete_all(self) -> None:
        """Bring it there when the schema is as it was."""
        self._connection.execute(EMPTY)

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _create(self) -> None:
        copy(self._postgres, SHARED, self._template)
        self._connection = psycopg.connect(self.url, autocommit=True, application_name=KEPT)
        self._schema = self._read_schema()

    def _read_schema(self) -> str:
        self._connection.execute(OTHERS)
        [(fingerprint,)] = self._connection.execute(SCHEMA)
        return str(fingerprint)


async def make_template(url: str) -> None:
    """Bring a fresh database to where every test begins."""
    async with Database(url) as database:
        await migrate(database)
        await test_clock.mark_as_made_for_tests(database)
        await test_clock.install(database, START)


def copy(postgres: Postgres, name: str, template: str) -> None:
    """Create a database as a copy of another, file by file, which takes a fifth of the time that the log would."""
    statement = sql.SQL("create database {} template {} strategy file_copy")
    postgres.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))


def emptying(tables: Iterable[str]) -> str:
    """Give the statements that empty a database, in the order that its references want."""
    # The audit goes by age alone, so it is made old.
    forgetting = ["update duly.test_clock set at = '9999-12-01'", "perform duly.forget_audit('1 day', 1000000)"]
    others_first = sorted(tables, key=lambda name: name == "duly.tenants")
    deletes = [f"delete from {table}" for table in others_first if table != "duly.audit"]
    as_at_the_start = [
        f"insert into duly.tenants (tenant, name, created_at) values (1, 'default', '{START}')",
        "update duly.shards set holder = null, epoch = 0",
        f"insert into duly.test_clock (at) values ('{START}')",
    ]
    return "; ".join([*forgetting, *deletes, *as_at_the_start])


def template_on(server: Postgres) -> str:
    """Make a migrated database on a server, with a clock that tests move, and a function that empties it."""
    server.create_database(TEMPLATE)
    asyncio.run(make_template(server.url(TEMPLATE)))
    with psycopg.connect(server.url(TEMPLATE), autocommit=True) as connection:
        body = emptying(row[0] for row in connection.execute(TABLES))
        connection.execute(f"create schema tests; create function {EMPTYING} as $$begin {body}; end$$".encode())
    return TEMPLATE


@pytest.fixture(scope="session")
def template(postgres: Postgres) -> str:
    """A migrated database, with a clock that tests move."""
    return template_on(postgres)


@pytest.fixture(scope="session")
def template_15(postgres_15: Postgres) -> str:
    """The same on the oldest server we support."""
    return template_on(postgres_15)


@pytest.fixture(scope="session")
def shared(postgres: Postgres, template: str):
    """The database that tests share."""
    shared = Shared(postgres, template)
    yield shared
    shared.close()


@pytest.fixture
def database_url(shared: Shared) -> str:
    """The address of a database that holds nothing."""
    shared.empty()
    return shared.url


@pytest.fixture
def own_database_url(request, postgres: Postgres, template: str):
    """The address of a database for this test alone, to change its schema."""
    name = f"test_of_{abs(hash(request.node.nodeid)):x}"
    copy(postgres, name, template)
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture
def clock() -> ManualClock:
    """Time that stands until the test advances it."""
    return ManualClock()


@pytest.fixture(scope="session")
async def kept(shared: Shared):
    """The connections to it that tests share."""
    kept = Kept(shared.url)
    yield kept
    await kept.close()


@pytest.fixture
async def database(database_url: str, kept: Kept, clock: ManualClock):
    """An open database that holds nothing."""
    async with kept.lent(clock) as opened:
        clock.moves(opened)
        yield opened


@pytest.fixture
def way_to_claim(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim as a worker does that is busy, or as one that was idle."""
    monkeypatch.setitem(ready.SQL, "claim", ready.SQL[request.param])


@pytest.fixture
async def own_database(own_database_url: str, clock: ManualClock):
    """An open database for this test alone, to change its schema."""
    async with Database(own_database_url, size_max=8, clock=clock, keyring=a_keyring) as opened:
        clock.moves(opened)
        yield opened
