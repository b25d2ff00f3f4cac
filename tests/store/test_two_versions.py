"""Two versions share a schema: a migration only adds, and what it would take away waits for those who need it."""

import asyncio
import time
from datetime import timedelta

import asyncpg
import pytest

from duly.domain.errors import DatabaseUnusable
from duly.store.connection.database import Database
from duly.store.schema import in_force, locks, state
from duly.store.schema.in_force import File
from duly.store.schema.migrate import Applied, check, finish, migrate
from duly.store.schema.plan import plan
from duly.store.schema.state import Migration, known
from duly.store.schema.steps import GROWS, MOMENT, UNKNOWN, steps
from duly.store.tables import clocks
from tests.worker.stories import until

NEXT = state.newest() + 1
ADDS = Migration(NEXT, "adds", "alter table duly.jobs add column note text", "alter table duly.jobs drop column note")
TAKES = Migration(NEXT, "takes", "drop function duly.lease_shards")
WRITE = "insert into duly.attempts select * from duly.attempts where false"
NEEDS = Migration(NEXT, "needs", "alter table duly.pauses add column why text not null")


@pytest.fixture
async def used(empty):
    """A database of this version, with a scheduler alive."""
    await migrate(empty)
    await clocks.record(empty, ["scheduler"], "old:1")
    return empty


def carry(monkeypatch, *more: Migration) -> None:
    """Let this version carry these besides."""
    carried = [*known(), *more]
    monkeypatch.setattr(state, "known", lambda: carried)


async def until_refused(database: Database, act) -> str:
    """Give the refusal of an act that would wait for older processes."""
    with pytest.raises(DatabaseUnusable) as refused:
        await act(database)
    return str(refused.value)


async def test_empty_database_is_finished_at_once(empty):
    await migrate(empty)

    assert (await state.read(empty)).unfinished == frozenset()


async def test_older_version_goes_on_and_starts_again_until_the_migration_is_finished(used, monkeypatch):
    with monkeypatch.context() as newer:
        carry(newer, ADDS)
        assert (await migrate(used)).migrations == [ADDS]
        assert (await state.read(used)).unfinished == {NEXT}

    await check(used)
    assert await migrate(used) == Applied([], [])
    await used.execute("update duly.processes set recorded_at = recorded_at - interval '1 minute'")
    with monkeypatch.context() as newer:
        carry(newer, ADDS)
        assert await finish(used) == [ADDS]
        await check(used)

    for act in (migrate, check, finish):
        with pytest.raises(DatabaseUnusable, match="newer Duly"):
            await act(used)
    assert not await used.fetchval(
        "select exists (select from pg_attribute where attname = 'note' and attrelid = 'duly.jobs'::regclass)"
    )


@pytest.mark.parametrize("migration", [TAKES, NEEDS], ids=lambda one: one.name)
async def test_migration_that_takes_something_away_waits_for_older_processes(used, monkeypatch, migration):
    carry(monkeypatch, migration)
    monkeypatch.setattr(locks, "ALIVE_SECONDS", 0.5)
    monkeypatch.setattr(locks, "_TRIES_MAX", 2)
    await used.execute("update duly.processes set recorded_at = recorded_at + interval '1 minute'")

    said = await until_refused(used, migrate)
    assert f"{NEXT:04d}_{migration.name} takes away what they use" in said
    assert "scheduler old:1 (0.1.0)" in said
    assert (await state.read(used)).newest == NEXT - 1

    await used.execute("update duly.processes set recorded_at = recorded_at - interval '2 minutes'")
    assert (await migrate(used)).migrations == [migration]
    assert (await state.read(used)).unfinished == frozenset(), "no older version can run beside it"


async def test_finish_refuses_older_versions_and_waits_for_them(used, monkeypatch):
    carry(monkeypatch, ADDS)
    await migrate(used)
    monkeypatch.setattr(locks, "ALIVE_SECONDS", 0.5)
    monkeypatch.setattr(locks, "_TRIES_MAX", 2)
    await used.execute("update duly.processes set recorded_at = recorded_at + interval '1 minute'")

    assert "old:1" in await until_refused(used, finish)
    assert (await state.read(used)).unfinished == {NEXT}
    assert [one.name for one in (await plan(used)).older] == ["old:1"]

    await used.execute("update duly.processes set recorded_at = recorded_at - interval '2 minutes'")
    assert await finish(used) == [ADDS]
    assert await finish(used) == []


async def test_next_upgrade_finishes_the_one_before(used, monkeypatch):
    await used.execute("delete from duly.processes")
    carry(monkeypatch, ADDS)
    await migrate(used)
    after = Migration(NEXT + 1, "after", "alter table duly.jobs add column more text")
    carry(monkeypatch, after)

    assert (await migrate(used)).migrations == [after]
    assert (await state.read(used)).unfinished == {NEXT + 1}


async def test_migration_that_keeps_its_locks_is_rolled_back_and_named(used, monkeypatch):
    carry(monkeypatch, Migration(NEXT, "slow", "lock table duly.jobs; select pg_sleep(30)"))
    monkeypatch.setattr(locks, "_HELD_TRIES", 1)

    said = await until_refused(used, lambda database: migrate(database, hold_max=timedelta(seconds=0.2)))

    assert f"{NEXT:04d}_slow would keep its locks for more than 0.2 s" in said
    assert "--hold" in said
    assert (await state.read(used)).newest == NEXT - 1


@pytest.mark.parametrize("place", ["migration", "triggers"])
async def test_many_short_statements_keep_a_lock_no_longer_than_one_long(used, monkeypatch, place):
    """The server limits each statement by itself."""
    sql = "lock table duly.jobs;" + "select pg_sleep(0.1);" * 20
    if place == "migration":
        carry(monkeypatch, Migration(NEXT, "slow", sql))
    else:
        files = [File(one.name, one.sql + sql) if one.name == "triggers.sql" else one for one in in_force.known()]
        monkeypatch.setattr(in_force, "known", lambda: files)
    monkeypatch.setattr(locks, "_HELD_TRIES", 1)
    began = time.monotonic()

    said = await until_refused(used, lambda database: migrate(database, hold_max=timedelta(seconds=0.4)))

    assert time.monotonic() - began < 1.5
    assert "would keep its locks for more than 0.4 s" in said
    assert (await state.read(used)).newest == NEXT - 1
    await used.execute("update duly.jobs set updated_at = updated_at")


async def test_concurrent_migration_builds_indexes_and_repeats_changes_until_done(used, monkeypatch):
    sql = """-- concurrently
    create index concurrently pauses_tenant on duly.pauses (tenant, queue);
    insert into duly.drained_hosts (host) select 'host-' || number from generate_series(1, 5) as number
     where not exists (select from duly.drained_hosts where host = 'host-' || number) limit 2;
    """
    carry(monkeypatch, Migration(NEXT, "concurrent", sql))

    assert [one.name for one in (await migrate(used)).migrations] == ["concurrent"]

    assert await used.fetchval("select count(*) from duly.drained_hosts") == 5
    assert await used.fetchval("select indisvalid from pg_index where indexrelid = 'duly.pauses_tenant'::regclass")


async def test_plain_statement_of_a_concurrent_file_lets_writers_pass_while_it_waits(used, monkeypatch):
    carry(monkeypatch, Migration(NEXT, "late", "-- concurrently\ncreate index late on only duly.attempts (due_at);"))
    holder, writer = [await asyncpg.connect(used.url) for _ in range(2)]
    await holder.execute(f"begin; {WRITE}")
    migrating = asyncio.create_task(migrate(used))
    try:
        await until(lambda: writer.fetchval("select exists (select from pg_locks where not granted)"))
        await writer.execute(WRITE, timeout=5)
        assert not migrating.done()
        await holder.execute("commit")
        assert [one.name for one in (await migrating).migrations] == ["late"]
    finally:
        migrating.cancel()
        await holder.close()
        await writer.close()


async def test_index_that_a_broken_build_left_behind_is_built_anew(used, monkeypatch):
    await used.execute("create table duly.twice (a integer); insert into duly.twice values (1), (1)")
    carry(
        monkeypatch,
        Migration(NEXT, "unique", "-- concurrently\ncreate unique index concurrently ones on duly.twice (a);"),
    )
    with pytest.raises(asyncpg.UniqueViolationError):
        await migrate(used)
    assert await used.fetchval("select indisvalid from pg_index where indexrelid = 'duly.ones'::regclass") is False

    await used.execute("delete from duly.twice")
    await migrate(used)

    assert await used.fetchval("select indisvalid from pg_index where indexrelid = 'duly.ones'::regclass")


async def test_an_empty_database_takes_a_concurrent_migration_too(empty, monkeypatch):
    carry(
        monkeypatch, Migration(NEXT, "x", "-- concurrently\ncreate index concurrently x on duly.jobs (queue, state);")
    )

    await migrate(empty)

    assert await empty.fetchval("select to_regclass('duly.x') is not null")


async def test_plan_names_steps_locks_and_sizes_and_does_nothing(used, monkeypatch):
    assert (await plan(used)).is_up_to_date
    carry(monkeypatch, ADDS)

    found = await plan(used)

    assert [(one.migration, one.step.lock, one.step.table) for one in found.steps] == [
        (f"{NEXT:04d}_adds", "ACCESS EXCLUSIVE", "jobs")
    ]
    assert found.steps[0].rows is not None
    assert not found.is_up_to_date
    assert (await state.read(used)).newest == NEXT - 1


@pytest.mark.parametrize(
    ("sql", "lock", "table", "takes"),
    [
        ("alter table duly.jobs add column x text default 'a;b'", "ACCESS EXCLUSIVE", "jobs", MOMENT),
        ("alter table duly.jobs add constraint x check (a > 0)", "ACCESS EXCLUSIVE", "jobs", GROWS),
        ("alter table duly.jobs add constraint x check (a > 0) not valid", "ACCESS EXCLUSIVE", "jobs", MOMENT),
        ("alter table duly.jobs validate constraint x", "SHARE UPDATE EXCLUSIVE", "jobs", GROWS),
        ("alter table duly.jobs alter column x type bigint", "ACCESS EXCLUSIVE", "jobs", GROWS),
        ("alter table duly.jobs set (fillfactor = 70)", "SHARE UPDATE EXCLUSIVE", "jobs", MOMENT),
        ("create index x on duly.jobs (a)", "SHARE", "jobs", GROWS),
        ("create unique index concurrently x on duly.jobs (a)", "SHARE UPDATE EXCLUSIVE", "jobs", GROWS),
        ("drop trigger if exists x on duly.attempts", "ACCESS EXCLUSIVE", "attempts", MOMENT),
        ("update duly.jobs set a = 1", "ROW EXCLUSIVE", "jobs", GROWS),
        ("create function duly.x() returns int language sql as $$ select 1; select 2 $$", None, None, ""),
        ("create table duly.x (y int)", None, None, ""),
        ("do $$ begin perform 1; end $$", UNKNOWN, None, UNKNOWN),
        ("cluster duly.jobs", UNKNOWN, None, UNKNOWN),
    ],
)
def test_step_of_a_statement(sql, lock, table, takes):
    [step] = steps(f"-- a comment; with a semicolon\n{sql};\n")

    assert (step.lock, step.table, step.takes) == (lock, table, takes)


def test_every_step_of_our_own_migrations_is_known():
    """The baseline is not read: it is applied where nobody waits."""
    for migration in known()[1:]:
        found = [step for step in steps(migration.sql) + steps(migration.finish) if step.lock == UNKNOWN]
        assert found == [], (migration.file, "give it a pattern in steps.py")
