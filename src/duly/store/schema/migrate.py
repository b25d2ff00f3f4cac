"""Migrations: a baseline and numbered SQL files, forward only, applied once each, safe when many processes start at
once.

They have what is made once: tables, indexes, policies, changes of data. Functions and other replaceable objects are
applied after them from files that state what is in force (in_force.py), in the same transaction and under the same
lock.
"""

from __future__ import annotations

import re
from importlib.resources import files

import asyncpg
import msgspec

from duly.domain.counting import some
from duly.domain.errors import DatabaseUnusable, KeyBusy
from duly.store.connection.database import Database
from duly.store.schema import in_force

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
# A lock of the transaction, not of the session, so that it works through a pooler; the number is "duly" in ASCII.
_LOCK = "select pg_advisory_xact_lock(1685417081)"
# A change of a large table may take longer than the server's timeouts allow; so may waiting for the lock.
_UNHURRIED = "set local statement_timeout = 0; set local lock_timeout = 0"
_STATEMENT_SECONDS_MAX = 86_400.0
# A waiter for a table lock blocks all others behind it, so no wait is long: it is given up and tried again.
_BRIEFLY = "set local lock_timeout = '200ms'"
# An autovacuum yields, but only to a waiter that has waited for deadlock_timeout: each tenth try outlasts that.
_AT_LENGTH = """
select set_config('lock_timeout', (setting::integer + 500)::text, true) from pg_settings where name = 'deadlock_timeout'
"""
_PATIENCE = [*[_BRIEFLY] * 9, _AT_LENGTH] * 10
_REST_SECONDS = 0.3
# The oldest holder of one of our tables, as far as we may see it.
_HOLDER = r"""
select pid, concat_ws(': ', coalesce(nullif(application_name, ''), backend_type),
                      regexp_replace(left(query, 200), '\s+', ' ', 'g')) as description
  from pg_stat_activity
 where pid <> pg_backend_pid() and pid in (
       select pid from pg_locks join pg_class on pg_class.oid = relation
        where granted and relnamespace = to_regnamespace('duly')
          and database = (select oid from pg_database where datname = current_database()))
 order by xact_start nulls first
 limit 1
"""
# The owner of objects that we may not change.
_OWNERS = """
select distinct pg_get_userbyid(owner)::text
  from (select relowner from pg_class where relnamespace = to_regnamespace('duly')
        union all select proowner from pg_proc where pronamespace = to_regnamespace('duly')) as made (owner)
 where not pg_has_role(owner, 'usage')
"""
_BASELINE = "baseline"
_APPLIED = "select version, name from duly.migrations"
_EXISTS = "select to_regclass('duly.migrations') is not null"
_TABLE = """
create schema if not exists duly;
create table if not exists duly.migrations (
    version integer primary key, name text not null, applied_at timestamptz not null default now());
"""


class Migration(msgspec.Struct, frozen=True):
    """One file."""

    version: int
    name: str
    sql: str


class Applied(msgspec.Struct, frozen=True):
    """The files that brought a schema up to date."""

    migrations: list[Migration]
    files: list[in_force.File]


def known() -> list[Migration]:
    """Read the migrations of this version of Duly: the baseline is the first."""
    folder = files("duly.store.schema")
    baseline = Migration(1, _BASELINE, folder.joinpath("baseline.sql").read_text(encoding="utf-8"))
    later = [
        Migration(int(match[1]), match[2], entry.read_text(encoding="utf-8"))
        for entry in folder.joinpath("migrations").iterdir()
        if (match := _FILE.fullmatch(entry.name))
    ]
    return [baseline, *sorted(later, key=lambda migration: migration.version)]


def newest() -> int:
    """Return the newest migration that this version of Duly has."""
    return max(migration.version for migration in known())


async def migrate(database: Database) -> Applied:
    """Bring the schema up to date. Returns what was applied. Raises DatabaseUnusable when the schema is newer than we are."""
    unhurried = database.beside(1, command_timeout=_STATEMENT_SECONDS_MAX)
    try:
        return await _keep_trying(unhurried)
    finally:
        await unhurried.close()


async def _keep_trying(database: Database) -> Applied:
    for patience in _PATIENCE:
        try:
            return await _migrate(database, patience)
        except KeyBusy:  # as for any lock that was not granted in time: another session holds a table to be changed
            await database.clock.sleep(_REST_SECONDS)
        except asyncpg.InsufficientPrivilegeError as error:
            raise DatabaseUnusable(await _not_ours(database, error)) from None
    raise DatabaseUnusable(
        f"the schema could not be migrated: {await _holder(database)} keeps one of its tables locked."
        " See pg_stat_activity for a long transaction, end it, then run `duly migrate`"
    )


async def _holder(database: Database) -> str:
    row = await database.fetchrow(_HOLDER)
    return f"process {row['pid']} ({row['description']})" if row else "another session"


async def _migrate(database: Database, patience: str) -> Applied:
    async with database.transaction() as connection:
        await connection.execute(f"{_UNHURRIED}; {_LOCK}")
        await connection.execute(patience)
        # `if not exists` requires the right to create even where there is nothing to create.
        if not await connection.fetchval(_EXISTS):
            await connection.execute(_TABLE)
        applied = {row[0]: row[1] for row in await connection.fetch(_APPLIED)}
        _refuse_others(applied)
        missing = [migration for migration in known() if migration.version not in applied]
        for migration in missing:
            await connection.execute(migration.sql)
            await connection.execute(
                "insert into duly.migrations (version, name) values ($1, $2)", migration.version, migration.name
            )
        return Applied(missing, await in_force.apply(connection))


async def _not_ours(database: Database, error: Exception) -> str:
    """Explain why the role may not migrate, and which role may."""
    if owners := await database.fetch(_OWNERS):
        names = " or ".join(sorted(row[0] for row in owners))
        return f"the role may not change the schema duly: {error}. Migrate as its owner, {names}"
    return f"the role may not create the schema duly: {error}. Grant it CREATE on the database"


async def check(database: Database) -> None:
    """Check that the schema is exactly the one of this version. Raises DatabaseUnusable, naming the remedy."""
    if not await database.fetchval(_EXISTS):
        raise DatabaseUnusable("the database has no schema of Duly yet. Run `duly migrate`")
    applied = {row[0]: row[1] for row in await database.fetch(_APPLIED)}
    _refuse_others(applied)
    if missing := [migration for migration in known() if migration.version not in applied]:
        raise DatabaseUnusable(
            f"the schema lacks {some(len(missing), 'migration')}, from {missing[0].version:04d}_{missing[0].name} on."
            " Run `duly migrate`"
        )
    await in_force.check(database)


def _refuse_others(applied: dict[int, str]) -> None:
    """Refuse data of another version that this one cannot migrate."""
    if applied.get(1, _BASELINE) != _BASELINE:
        raise DatabaseUnusable(
            "the data belongs to a development version of Duly and cannot be converted."
            " Export its schedules with that version (`duly export`), then start on a new database or data folder"
        )
    if applied and max(applied) > newest():
        raise DatabaseUnusable(
            f"the data belongs to a newer Duly (schema {max(applied)}, this one knows {newest()})."
            " Upgrade Duly: pip install --upgrade duly"
        )
