"""Functions, views and triggers: each stands in one place, and that is in force; of two versions of Duly the newer decides."""

import os
import re
import subprocess
import sys
from functools import partial

import pytest

from duly.domain.errors import DatabaseUnusable
from duly.store.schema import in_force, migrate, state
from duly.store.schema.in_force import File
from tests.store.schema import EDITION, describe, digest_of_functions, texts

FUNCTION = re.compile(r"^create (?:or replace )?function duly\.(\w+)\(.*?\$\$(.*?)\$\$;", re.MULTILINE | re.DOTALL)
MADE = re.compile(
    r"^create (?:or replace )?(?:constraint )?(?:view|trigger|function) (?:duly\.)?(\w+)", re.MULTILINE | re.IGNORECASE
)
DROPPED = re.compile(r"^drop (?:view|trigger|function)(?: if exists)? ([^;]+);", re.MULTILINE | re.IGNORECASE)
IN_FORCE = "select proname, prosrc from pg_proc where pronamespace = 'duly'::regnamespace"
NAMED = """
select proname from pg_proc where pronamespace = 'duly'::regnamespace
union all select relname from pg_class where relnamespace = 'duly'::regnamespace and relkind = 'v'
union all select tgname from pg_trigger join pg_class on pg_class.oid = tgrelid
           where relnamespace = 'duly'::regnamespace and not tgisinternal and tgparentid = 0
"""
PUBLIC = """
select proname from pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner))) as given
 where pronamespace = 'duly'::regnamespace and given.grantee = 0
"""
# What a process makes of the texts that Duly carries.
READ = """
import hashlib
from duly.store.connection import statements
from duly.store.schema import in_force, state
texts = [file.digest for file in in_force.known()], [one.sql for one in state.known()], statements.load("tables/jobs")
print(hashlib.sha256(repr(texts).encode()).hexdigest())
"""
A_NUMBER = "create or replace function duly.a_number() returns integer language sql as $$ select {} $$;"


@pytest.fixture
async def migrated(empty):
    """A database that this version has made."""
    await migrate.migrate(empty)
    return empty


def carry(monkeypatch, *files, edition=None):
    """Let this version carry `files` besides, as the edition it has or another."""
    carried, number = in_force.known(), in_force.edition() if edition is None else edition
    monkeypatch.setattr(in_force, "known", lambda: [*carried, *files])
    monkeypatch.setattr(in_force, "edition", lambda: number)


async def test_functions_views_and_triggers_are_each_defined_in_one_file(migrated):
    standing = [name for text in texts().values() for name in MADE.findall(text)]

    assert sorted(standing) == sorted(row[0] for row in await migrated.fetch(NAMED))


async def test_functions_of_the_schema_files_are_in_force(migrated):
    said = {name: body for text in texts().values() for name, body in FUNCTION.findall(text)}

    assert said == dict(await migrated.fetch(IN_FORCE))


async def test_each_is_lawful_where_all_are_there(migrated):
    """They are written unchecked, because they call each other in any order; so the server checks them here."""
    async with migrated.transaction() as connection:
        await connection.execute("set local check_function_bodies = on")
        for file in in_force.known():
            await connection.execute(file.sql)


def test_function_is_defined_in_a_migration_only_where_a_table_needs_it():
    """Or where something else takes its place: a database for tests has a clock of its own."""
    standing = {name for migration in state.known() for name in MADE.findall(migration.sql)}

    assert standing == {"clock_now", "current_tenant", "owns", "fifo_number", "expiry", "reported_origin"}


async def test_migrate_rewrites_changed_files_only(migrated, monkeypatch):
    written = "select oid, xmin::text from pg_trigger where not tgisinternal order by 1"
    triggers = await migrated.fetch(written)

    with monkeypatch.context() as patched:
        carry(patched, File("one.sql", A_NUMBER.format(1)))
        assert [file.name for file in (await migrate.migrate(migrated)).files] == ["one.sql"]
    carry(monkeypatch, File("one.sql", A_NUMBER.format(2)))
    with pytest.raises(DatabaseUnusable, match=r"differ in 1 file, from one.sql on. Run `duly migrate`"):
        await migrate.check(migrated)
    assert [file.name for file in (await migrate.migrate(migrated)).files] == ["one.sql"]
    await migrate.check(migrated)

    assert await migrated.fetchval("select duly.a_number()") == 2
    assert await migrated.fetch(written) == triggers


async def test_function_written_by_hand_stays_until_its_file_changes(migrated):
    """So a database for tests keeps what they have put there, and a start that finds nothing new writes nothing."""
    await migrated.execute("create or replace function duly.chance(p_seed bigint, p_number bigint) returns double precision"
                           " language sql immutable as $$ select 0.5::double precision $$")  # fmt: skip

    assert (await migrate.migrate(migrated)).files == []
    assert await migrated.fetchval("select duly.chance(1, 1)") == 0.5

    await migrated.execute("delete from duly.functions where file = 'subqueues.sql'")
    assert [file.name for file in (await migrate.migrate(migrated)).files] == ["subqueues.sql"]
    assert await migrated.fetchval("select duly.chance(1, 1)") != 0.5


async def test_a_new_function_is_not_everybodys(migrated, monkeypatch):
    carry(monkeypatch, File("one.sql", A_NUMBER.format(1)))

    await migrate.migrate(migrated)

    assert await migrated.fetch(PUBLIC) == []


async def test_older_duly_leaves_the_functions_of_a_newer_one_unchanged(migrated, monkeypatch):
    """In a rolling upgrade the two start in any order: the newer writes once, and the older runs on it."""
    newer = in_force.edition() + 1
    with monkeypatch.context() as patched:
        carry(patched, File("one.sql", A_NUMBER.format(1)), edition=newer)
        await migrate.migrate(migrated)
        before = await describe(migrated)

    assert await migrate.migrate(migrated) == migrate.Applied([], [])
    await migrate.check(migrated)
    assert await describe(migrated) == before

    carry(monkeypatch, File("one.sql", A_NUMBER.format(1)), edition=newer)
    assert (await migrate.migrate(migrated)).files == []
    assert await describe(migrated) == before


def test_a_text_is_the_same_in_every_locale():
    """Or two processes of one version, one of them in another locale, would write the functions anew in turn."""
    read = partial(subprocess.run, capture_output=True, check=True, text=True)
    plain = read([sys.executable, "-X", "utf8=1", "-c", READ])

    assert (
        read([sys.executable, "-X", "utf8=0", "-c", READ], env=os.environ | {"LC_ALL": "POSIX"}).stdout == plain.stdout
    )


async def test_removed_schema_file_is_forgotten(migrated, monkeypatch):
    with monkeypatch.context() as patched:
        carry(patched, File("one.sql", A_NUMBER.format(1)))
        await migrate.migrate(migrated)
    carry(monkeypatch, edition=in_force.edition() + 1)

    assert (await migrate.migrate(migrated)).files == []

    assert {row[0] for row in await migrated.fetch("select file from duly.functions")} == {
        file.name for file in in_force.known()
    }


def test_schema_edition_matches_the_digest_of_its_functions():
    """Or an older Duly could not tell that another has written what it finds."""
    assert EDITION.read_text().split()[1] == digest_of_functions(), "`python -m tests.store.schema` raises the edition"


def test_migration_that_drops_a_function_of_a_file_has_the_file_reapplied():
    """Its text has not changed, so the digest has to go: `delete from duly.functions where file = …`."""
    files = {name: file.name for file in in_force.known() for name in MADE.findall(file.sql)}
    later = [migration for migration in state.known() if migration.version > 1]

    for migration in later:
        gone = {name for names in DROPPED.findall(migration.sql) for name in re.findall(r"\w+", names)} & set(files)
        assert all(f"file = '{files[name]}'" in migration.sql for name in gone), (migration.name, gone)
