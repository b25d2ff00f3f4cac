"""Migrations: forward only, applied once each by whoever comes first, and equal to the schema that is kept beside them."""

import asyncio
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import AsyncMock

import asyncpg
import pytest

from duly.domain.errors import DatabaseUnusable
from duly.postgres import embedded
from duly.store.connection.database import Database
from duly.store.schema import in_force, locks, state
from duly.store.schema import migrate as module
from duly.store.schema.migrate import Applied, check, migrate
from duly.store.schema.plan import plan
from duly.store.schema.state import Migration, known
from tests.store.schema import describe, texts
from tests.worker.stories import until

SNAPSHOT = Path(__file__).with_name("schema.txt")
MUCH_TO_VACUUM = """
create table duly.much with (autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1)
    as select repeat('x', 200) as x from generate_series(1, 20000);
delete from duly.much;
"""
IS_VACUUMED = """
select exists (select from pg_locks where relation = 'duly.much'::regclass and mode = 'ShareUpdateExclusiveLock')
"""
ONE_PROCESS = """
import asyncio, sys
from duly.store.connection.database import Database
from duly.store.schema.migrate import migrate

async def main():
    async with Database(sys.argv[1], pooler=bool(int(sys.argv[2]))) as database:
        print(len((await migrate(database)).migrations))

asyncio.run(main())
"""


def migrate_in_five_processes(url: str, *, pooler: bool = False) -> int:
    """Migrate the database in five processes at once. Gives how many of them found something to do."""
    command = [sys.executable, "-c", ONE_PROCESS, url, str(int(pooler))]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(5)]
    applied = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0] * 5
    assert sum(applied) == len(known())
    return sum(1 for number in applied if number)


def carry(monkeypatch, sql: str) -> None:
    """Let this version carry one migration more."""
    more = [*known(), Migration(state.newest() + 1, "more", sql)]
    monkeypatch.setattr(state, "known", lambda: more)


async def test_the_migrations_make_the_schema_that_is_kept(empty):
    await migrate(empty)

    made = await describe(empty)

    assert made == SNAPSHOT.read_text(), "a migration changed the schema: `python -m tests.store.schema` writes it anew"


async def test_applied_again_there_is_nothing_to_do(empty):
    assert await migrate(empty) == Applied(known(), in_force.known())

    assert await migrate(empty) == Applied([], [])
    await check(empty)


def test_five_processes_may_start_at_once(postgres):
    name = postgres.create()

    assert migrate_in_five_processes(postgres.url(name)) == 1

    postgres.drop_database(name)


async def test_migration_backs_off_from_a_locked_table_and_retries(empty, monkeypatch):
    """All who use a table wait behind whoever waits to change it: no longer than a moment at a time."""
    await migrate(empty)
    carry(monkeypatch, "alter table duly.ready add column more integer")
    rests = []

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 3:
            await reader.execute("commit")

    monkeypatch.setattr(empty.clock, "sleep", rest)
    reader = await asyncpg.connect(empty.url)
    try:
        await reader.execute("begin; select from duly.ready")

        async with asyncio.timeout(20):
            applied = await migrate(empty)
    finally:
        await reader.close()

    assert ([one.name for one in applied.migrations], len(rests)) == (["more"], 3)


def test_numbers_follow_one_another_and_none_is_given_twice():
    versions = [migration.version for migration in known()]

    assert versions == [*range(1, versions[-1] + 1)]


async def test_a_schema_that_is_missing_is_named_with_the_remedy(empty):
    with pytest.raises(DatabaseUnusable, match=r"no schema of Duly yet\. Run `duly migrate`"):
        await check(empty)


async def test_a_schema_that_is_behind_is_named_with_the_remedy(empty, monkeypatch):
    await migrate(empty)
    monkeypatch.setattr(state, "known", lambda: [*known(), Migration(9999, "future", "select 1")])

    with pytest.raises(DatabaseUnusable, match=r"lacks 1 migration, from 9999_future on. Run `duly migrate`"):
        await check(empty)


@pytest.mark.parametrize(
    "names", [["boxes", "queues"], ["baseline"], ["baseline", "cheaper_moves", "restored"]], ids=" ".join
)
async def test_data_of_development_versions_are_refused_and_not_touched(empty, names):
    await migrate(empty)
    await empty.execute("alter table duly.migrations drop column finished_at; delete from duly.migrations")
    for version, name in enumerate(names, 1):
        await empty.execute("insert into duly.migrations (version, name) values ($1, $2)", version, name)
    before = await describe(empty)

    for act in (migrate, check, plan):
        with pytest.raises(DatabaseUnusable, match=r"development version.*`duly export`"):
            await act(empty)

    assert await describe(empty) == before


async def test_data_of_a_newer_duly_are_refused_and_not_touched(empty):
    await migrate(empty)
    await empty.execute("insert into duly.migrations (version, name, finished_at) values (9999, 'future', now())")
    before = await describe(empty)

    for act in (migrate, check):
        with pytest.raises(DatabaseUnusable, match=r"newer Duly \(schema 9999.*pip install --upgrade duly"):
            await act(empty)

    assert await describe(empty) == before


async def test_a_migration_that_fails_leaves_nothing_of_itself(empty, monkeypatch):
    broken = Migration(9999, "broken", "create table duly.half (); select 1 / 0")
    monkeypatch.setattr(state, "known", lambda: [*known(), broken])

    with pytest.raises(Exception, match="division by zero"):
        await migrate(empty)

    assert await empty.fetchval("select to_regnamespace('duly') is null")


async def test_migrate_names_the_grant_that_a_role_lacks_to_create_the_schema(postgres, monkeypatch):
    async with Database(postgres.url("template1")) as foreign:
        monkeypatch.setattr(module, "_TABLE", "create schema pg_duly")

        with pytest.raises(DatabaseUnusable, match="Grant it CREATE on the database"):
            await migrate(foreign)


async def test_the_right_to_create_is_needed_once(empty, monkeypatch):
    await migrate(empty)
    await empty.execute(f"revoke create on database {await empty.fetchval('select current_database()')} from duly")
    carry(monkeypatch, "alter table duly.ready add column more integer")

    assert [one.name for one in (await migrate(empty)).migrations] == ["more"]


READ = "grant select, insert on duly.migrations to duly_api; grant select on duly.functions to duly_api;"
CREATE = "grant create on schema duly to duly_api;"
FORGET_ONE = "delete from duly.functions where file = 'claim.sql';"


@pytest.mark.parametrize(
    ("granted", "sql", "denied"),
    [
        pytest.param("select", "", "permission denied for table", id="rows"),
        pytest.param(READ, "drop table duly.ready", "must be owner of table", id="table"),
        pytest.param(READ + FORGET_ONE, "", "permission denied for schema", id="schema"),
        pytest.param(READ + CREATE + FORGET_ONE, "", "must be owner of function", id="function"),
    ],
)
async def test_migrate_names_the_owner_to_a_role_that_may_not_change_the_schema(
    empty, monkeypatch, granted, sql, denied
):
    await migrate(empty)
    await empty.execute(granted)
    if sql:
        carry(monkeypatch, sql)

    async with Database(f"{empty.url}&role=duly_api") as foreign:
        with pytest.raises(DatabaseUnusable, match=rf"{denied}.*\. Migrate as its owner, duly$"):
            await migrate(foreign)


async def test_a_process_that_waits_for_another_finds_its_work_done(empty):
    other = Database(empty.url)
    async with other:
        first, second = await asyncio.gather(migrate(empty), migrate(other))

    assert sorted([len(first.migrations), len(second.migrations)]) == [0, len(known())]


async def test_migrate_names_the_process_that_blocks_a_table(empty, monkeypatch):
    await migrate(empty)
    carry(monkeypatch, "alter table duly.ready add column more integer")
    monkeypatch.setattr(locks, "_TRIES_MAX", 2)
    reader = await asyncpg.connect(empty.url, server_settings={"application_name": "a report"})
    await reader.execute("begin; select from duly.ready")
    pid = reader.get_server_pid()
    try:
        holder = rf"process {pid} \(a report: begin; select from duly.ready\)"
        with pytest.raises(DatabaseUnusable, match=rf"{holder} .*pg_stat_activity.*`duly migrate`"):
            await migrate(empty)
    finally:
        await reader.close()


@pytest.fixture
def vacuuming(tmp_path):
    """A server that vacuums by itself what asks for it, and nothing else."""
    settings = {
        "autovacuum_naptime": "1s",
        "autovacuum_vacuum_threshold": "1000000",
        "autovacuum_vacuum_insert_threshold": "-1",
        "autovacuum_analyze_threshold": "1000000",
    }
    with embedded.start(
        tmp_path / "postgres", durable=False, settings={"shared_buffers": "32MB", **settings}
    ) as server:
        yield server


@pytest.fixture
async def vacuumed(vacuuming):
    """A database with a table that an autovacuum is in, which will not leave it within the time of a test."""
    async with Database(vacuuming.url) as database:
        await migrate(database)
        await database.execute(MUCH_TO_VACUUM)
        await until(lambda: database.fetchval(IS_VACUUMED))
        yield database


async def test_an_autovacuum_gives_way(vacuumed, monkeypatch):
    """It does so for whoever has waited for `deadlock_timeout`, which is longer than we wait for a person."""
    carry(monkeypatch, "alter table duly.much add column more integer")
    monkeypatch.setattr(vacuumed.clock, "sleep", AsyncMock())

    assert [one.name for one in (await migrate(vacuumed)).migrations] == ["more"]


@pytest.fixture
async def hurried(empty):
    """The same database for somebody who waits a moment for an answer, on a server that gives no statement and no lock longer."""
    name = await empty.fetchval("select current_database()")
    await empty.execute(f"alter database {name} set statement_timeout = '250ms'")
    await empty.execute(f"alter database {name} set lock_timeout = '50ms'")
    async with Database(empty.url, command_timeout=0.25) as database:
        yield database


async def test_a_migration_takes_as_long_as_it_takes(empty, hurried, monkeypatch):
    await migrate(empty)
    carry(monkeypatch, "select pg_sleep(0.5)")

    assert [one.name for one in (await migrate(hurried)).migrations] == ["more"]


async def test_migrate_waits_patiently_for_an_earlier_migration(empty, hurried, monkeypatch):
    await migrate(empty)
    monkeypatch.setattr(locks, "_TRIES_MAX", 1)
    async with empty.transaction() as connection:
        await connection.execute(locks.LOCK)
        waiting = asyncio.create_task(migrate(hurried))
        await asyncio.sleep(0.5)
        assert not waiting.done()

    assert await waiting == Applied([], [])


def test_a_migration_needs_no_right_that_a_plain_owner_lacks():
    """Managed servers give no superuser: no extension, no language, no setting of the server, and no role but the door's.

    That one is made where we may; where we may not, the refusal tells the statements (tests/store/test_roles.py).
    """
    forbidden = re.compile(
        r"create extension|create role|alter role|alter system|language (?!sql|plpgsql)", re.IGNORECASE
    )

    for name, text in texts().items():
        assert not forbidden.search(text.replace("create role duly_api nologin", "")), name
