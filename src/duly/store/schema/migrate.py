"""Migrations: a baseline and numbered SQL files, forward only, applied once each, safe when many processes start at
once.

They have what is made once: tables, indexes, policies, changes of data. Functions and other replaceable objects are
applied after them from files that state what is in force (in_force.py), under the same lock.

A migration only adds, so processes of the version before go on beside it, and start again after a roll-back. What they
need and the new version does not is removed by `finish`, once none of them is alive; after that they are refused. A
migration that takes something away by itself is applied only where none is alive. See
docs/decisions/0054-two-versions-share-a-schema.md.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from duly.domain.counting import few, some
from duly.domain.errors import DatabaseUnusable
from duly.store.connection.database import Database
from duly.store.connection.statements import load
from duly.store.schema import concurrent, in_force, state
from duly.store.schema.locks import HOLD_MAX, held_at_most, in_patience
from duly.store.schema.older import broken, older, refuse_beside, shapes
from duly.store.schema.state import Migration

SQL = load("schema/migrate")
_STATEMENT_SECONDS_MAX = 86_400.0
_TABLE = """
create schema if not exists duly;
create table if not exists duly.migrations (
    version integer primary key, name text not null, applied_at timestamptz not null default now(), finished_at timestamptz);
"""


class Applied(msgspec.Struct, frozen=True):
    """The files that brought a schema up to date."""

    migrations: list[Migration]
    files: list[in_force.File]


async def migrate(database: Database, *, hold_max: timedelta = HOLD_MAX) -> Applied:
    """Bring the schema up to date. Returns what was applied; nothing where a newer version has, and we may run beside it.

    Raises DatabaseUnusable, naming the remedy: the schema is newer than we are, something keeps a table locked, a
    migration would keep its locks for longer than `hold_max`, or processes of an older version are in the way.
    """
    unhurried = database.beside(1, command_timeout=_STATEMENT_SECONDS_MAX)
    try:
        return await _migrate(unhurried, hold_max.total_seconds())
    finally:
        await unhurried.close()


async def _migrate(database: Database, hold_seconds: float) -> Applied:
    found = await in_patience(database, state.read)
    if found.newest == 0:
        return await in_patience(database, _begin_with)
    missing = found.missing()
    if missing and found.unfinished:  # a schema is shared by two versions, and not by three
        await _finish(database, hold_seconds)
    applied = [migration for migration in missing if await _applied_alone(database, migration, hold_seconds)]
    return Applied(applied, await _written(database, hold_seconds))


async def _begin_with(connection: Any) -> Applied:
    """Make everything in an empty database, where nobody waits and nothing is older."""
    await connection.execute(_TABLE)
    found = await state.read(connection)
    missing = found.missing()
    for migration in missing:
        await connection.execute(concurrent.as_plain(migration.sql))
        await connection.execute(SQL["record"], migration.version, migration.name)
    if found.newest == 0:
        await connection.execute(SQL["finish_all"])
    return Applied(missing, await in_force.apply(connection))


async def _applied_alone(database: Database, migration: Migration, hold_seconds: float) -> bool:
    """Apply one migration to a database in use. False: somebody else has."""
    if concurrent.is_concurrent(migration.sql):
        await concurrent.carry_out(database, migration.sql)

    async def apply(connection: Any) -> bool:
        found = await state.read(connection)
        if migration.version in found.applied:
            return False
        before = await shapes(connection)
        async with held_at_most(connection, hold_seconds):
            if not concurrent.is_concurrent(migration.sql):
                await connection.execute(migration.sql)
            lost = broken(before, await shapes(connection))
            if lost:
                alive = await older(connection, migration.version)
                refuse_beside(alive, f"migration {migration.file} takes away what they use ({few(lost)})")
            await connection.execute(SQL["record"], migration.version, migration.name)
            if lost:
                await connection.execute(SQL["finish_all"])
        return True

    return await in_patience(database, apply, migration.file)


async def _written(database: Database, hold_seconds: float) -> list[in_force.File]:
    """Apply functions, views and triggers to a database in use."""

    async def write(connection: Any) -> list[in_force.File]:
        found = await state.read(connection)
        if found.newest > state.newest():
            return []
        before = await shapes(connection)
        written = await in_force.apply(connection, hold_seconds)
        if lost := broken(before, await shapes(connection)):
            alive = await older(connection, state.newest())
            refuse_beside(alive, f"the functions take away what they use ({few(lost)})")
        return written

    return await in_patience(database, write, "the replacement of triggers and views")


async def finish(database: Database, *, hold_max: timedelta = HOLD_MAX) -> list[Migration]:
    """Remove what only older versions need, so that they cannot start any more. Returns the migrations that were finished.

    Raises DatabaseUnusable while one of their processes is alive, or when the schema is not of this version.
    """
    await check(database)
    if (found := await state.read(database)).newest > state.newest():
        raise DatabaseUnusable(state.of_newer(found.newest))
    unhurried = database.beside(1, command_timeout=_STATEMENT_SECONDS_MAX)
    try:
        return await _finish(unhurried, hold_max.total_seconds())
    finally:
        await unhurried.close()


async def _finish(database: Database, hold_seconds: float) -> list[Migration]:
    async def remove(connection: Any) -> list[Migration]:
        found = await state.read(connection)
        if not found.unfinished:
            return []
        refuse_beside(await older(connection, found.newest), f"schema {found.newest} cannot be finished")
        done = [migration for migration in state.known() if migration.version in found.unfinished]
        async with held_at_most(connection, hold_seconds):
            for migration in done:
                if migration.finish:
                    await connection.execute(migration.finish)
            await connection.execute(SQL["finish_all"])
        return done

    return await in_patience(database, remove, "the end of the last migration")


async def check(database: Database) -> None:
    """Check that this version may use the schema. Raises DatabaseUnusable, naming the remedy."""
    found = await state.read(database)
    if not found.applied:
        raise DatabaseUnusable("the database has no schema of Duly yet. Run `duly migrate`")
    if missing := found.missing():
        raise DatabaseUnusable(
            f"the schema lacks {some(len(missing), 'migration')}, from {missing[0].file} on. Run `duly migrate`"
        )
    await in_force.check(database)
