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

import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from importlib.resources import files
from typing import Any, TypeVar

import asyncpg
import msgspec

from duly.domain.counting import few, some
from duly.domain.errors import DatabaseUnusable, DulyError, KeyBusy
from duly.store.connection.database import Connection, Database
from duly.store.connection.statements import load
from duly.store.schema import concurrent, in_force
from duly.store.schema.steps import Step, steps

T = TypeVar("T")
SQL = load("schema/migrate")
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
# A lock of the transaction, not of the session, so that it works through a pooler; the number is "duly" in ASCII.
LOCK = "select pg_advisory_xact_lock(1685417081)"
# A change of a large table may take longer than the server's timeouts allow; so may waiting for the lock.
_UNHURRIED = "set local statement_timeout = 0; set local lock_timeout = 0"
_STATEMENT_SECONDS_MAX = 86_400.0
# A waiter for a table lock blocks all others behind it, so no wait is long: it is given up and tried again.
_BRIEFLY = "set local lock_timeout = '200ms'"
_TRIES_MAX = 100
_YIELD_EVERY = 10  # tries; in each tenth, autovacuums are made to yield first
_REST_SECONDS = 0.3
HOLD_MAX = timedelta(seconds=1)  # how long a migration may keep its locks, in a database that is in use
_HELD_TRIES = 3
# A process records itself every five seconds, and is taken as ended when it has not for so long.
_ALIVE_SECONDS = 15.0
# The name of the first migration. It changes with the baseline until the first release, so that data of an earlier development
# version, which had other tables under the same numbers, is recognised and refused.
_BASELINE = "tables"
_TABLE = """
create schema if not exists duly;
create table if not exists duly.migrations (
    version integer primary key, name text not null, applied_at timestamptz not null default now(), finished_at timestamptz);
"""


class Migration(msgspec.Struct, frozen=True):
    """One file, and the one that finishes it, if there is something to remove."""

    version: int
    name: str
    sql: str
    finish: str = ""

    @property
    def file(self) -> str:
        """Return the name of its file."""
        return f"{self.version:04d}_{self.name}"


class Applied(msgspec.Struct, frozen=True):
    """The files that brought a schema up to date."""

    migrations: list[Migration]
    files: list[in_force.File]


class Process(msgspec.Struct, frozen=True):
    """A live process of an older version."""

    role: str
    name: str
    host: str
    version: str

    @property
    def words(self) -> str:
        """Describe it."""
        return f"{self.role} {self.name} ({self.version or 'unknown version'}) on {self.host}"


class State(msgspec.Struct, frozen=True):
    """The schema of a database: the name of each applied migration, and those that are not finished."""

    applied: dict[int, str]
    unfinished: frozenset[int]

    @property
    def newest(self) -> int:
        """Return the newest applied migration; 0 in an empty database."""
        return max(self.applied, default=0)

    def missing(self) -> list[Migration]:
        """Return those of this version that are not applied."""
        return [migration for migration in known() if migration.version not in self.applied]


class _HeldTooLong(DulyError):
    """A migration kept its locks for longer than it may, and was rolled back."""


class _OlderAlive(DulyError):
    """Processes of an older version are in the way."""


def known() -> list[Migration]:
    """Read the migrations of this version of Duly: the baseline is the first."""
    folder = files("duly.store.schema")
    parts = [folder.joinpath(name).read_text(encoding="utf-8") for name in ("role.sql", "baseline.sql")]
    baseline = Migration(1, _BASELINE, "\n".join(parts))
    texts = {entry.name: entry.read_text(encoding="utf-8") for entry in folder.joinpath("migrations").iterdir()}
    later = [
        Migration(int(match[1]), match[2], text, texts.get(f"{match[1]}_{match[2]}.finish.sql", ""))
        for name, text in texts.items()
        if (match := _FILE.fullmatch(name))
    ]
    return [baseline, *sorted(later, key=lambda migration: migration.version)]


def newest() -> int:
    """Return the newest migration that this version of Duly has."""
    return max(migration.version for migration in known())


class Touched(msgspec.Struct, frozen=True):
    """A step of a migration, and the size of the table that it locks: estimated rows, and bytes with its partitions."""

    migration: str
    step: Step
    rows: int | None
    bytes: int | None


class Plan(msgspec.Struct, frozen=True):
    """The steps of `migrate` and of `finish`, and the processes in their way."""

    schema: int
    steps: list[Touched]
    files: list[str]
    unfinished: list[str]
    finish_steps: list[Touched]
    older: list[Process]
    oldest_transaction_seconds: float | None

    @property
    def is_up_to_date(self) -> bool:
        """Return whether `migrate` would do nothing."""
        return not self.steps and not self.files


# -------------------------------------------------------------------------------------------------------------- forward


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
    found = await _in_patience(database, None, _read)
    if found.newest == 0:
        return await _in_patience(database, None, _begin_with)
    missing = found.missing()
    if missing and found.unfinished:  # a schema is shared by two versions, and not by three
        await _finish(database, hold_seconds)
    applied = [migration for migration in missing if await _applied_alone(database, migration, hold_seconds)]
    written = await _in_patience(database, None, _write_functions)
    return Applied(applied, written)


async def _begin_with(connection: Any) -> Applied:
    """Make everything in an empty database, where nobody waits and nothing is older."""
    await connection.execute(_TABLE)
    found = await _read(connection)
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
        found = await _read(connection)
        if migration.version in found.applied:
            return False
        before = await _shapes(connection)
        if not concurrent.is_concurrent(migration.sql):
            await connection.execute(migration.sql)
        broken = _broken(before, await _shapes(connection))
        if broken:
            older = await _older(connection, migration.version)
            _refuse_beside(older, f"migration {migration.file} takes away what they use ({few(broken)})")
        await connection.execute(SQL["record"], migration.version, migration.name)
        if broken:
            await connection.execute(SQL["finish_all"])
        return True

    return await _in_patience(database, hold_seconds, apply, migration.file)


async def _write_functions(connection: Any) -> list[in_force.File]:
    found = await _read(connection)
    if found.newest > newest():
        return []
    before = await _shapes(connection)
    written = await in_force.apply(connection)
    if broken := _broken(before, await _shapes(connection)):
        older = await _older(connection, newest())
        _refuse_beside(older, f"the functions take away what they use ({few(broken)})")
    return written


# --------------------------------------------------------------------------------------------------------------- finish


async def finish(database: Database, *, hold_max: timedelta = HOLD_MAX) -> list[Migration]:
    """Remove what only older versions need, so that they cannot start any more. Returns the migrations that were finished.

    Raises DatabaseUnusable while one of their processes is alive, or when the schema is not of this version.
    """
    await check(database)
    if (found := await state(database)).newest > newest():
        raise DatabaseUnusable(_newer(found.newest))
    unhurried = database.beside(1, command_timeout=_STATEMENT_SECONDS_MAX)
    try:
        return await _finish(unhurried, hold_max.total_seconds())
    finally:
        await unhurried.close()


async def _finish(database: Database, hold_seconds: float) -> list[Migration]:
    async def remove(connection: Any) -> list[Migration]:
        found = await _read(connection)
        if not found.unfinished:
            return []
        _refuse_beside(await _older(connection, found.newest), f"schema {found.newest} cannot be finished")
        done = [migration for migration in known() if migration.version in found.unfinished]
        for migration in done:
            if migration.finish:
                await connection.execute(migration.finish)
        await connection.execute(SQL["finish_all"])
        return done

    return await _in_patience(database, hold_seconds, remove, "the end of the last migration")


# ---------------------------------------------------------------------------------------------------------- its parts


async def _in_patience(
    database: Database, hold_seconds: float | None, act: Callable[[Any], Awaitable[T]], what: str = ""
) -> T:
    """Act in a transaction under the lock of migrations, and again when a table is locked, or was kept locked too long."""
    held, until = 0, database.clock.monotonic() + _ALIVE_SECONDS + _REST_SECONDS
    for number in range(1, _TRIES_MAX + 1):
        try:
            return await _in_transaction(database, number % _YIELD_EVERY == 0, hold_seconds, act)
        except _OlderAlive as error:
            if database.clock.monotonic() > until or number == _TRIES_MAX:
                raise DatabaseUnusable(str(error)) from None
            await database.clock.sleep(_REST_SECONDS)
        except KeyBusy:  # as for any lock that was not granted in time: another session holds a table to be changed
            await database.clock.sleep(_REST_SECONDS)
        except _HeldTooLong:
            held += 1
            if held == _HELD_TRIES:
                raise DatabaseUnusable(
                    f"{what} would keep its locks for more than {hold_seconds:g} s, and was rolled back: claims would wait."
                    " Run it in a quiet hour, and allow it longer: duly migrate --hold PT10S"
                ) from None
            await database.clock.sleep(_REST_SECONDS)
        except asyncpg.InsufficientPrivilegeError as error:
            raise DatabaseUnusable(await _not_ours(database, error)) from None
    raise DatabaseUnusable(
        f"the schema could not be migrated: {await holder(database)} keeps one of its tables locked."
        " See pg_stat_activity for a long transaction, end it, then run `duly migrate`"
    )


async def _in_transaction(
    database: Database, vacuums_yield: bool, hold_seconds: float | None, act: Callable[[Any], Awaitable[T]]
) -> T:
    began = None
    try:
        async with database.transaction() as connection:
            await connection.execute(f"{_UNHURRIED}; {LOCK}")
            if vacuums_yield:
                await _make_vacuums_yield(connection)
            await connection.execute(_BRIEFLY)
            if hold_seconds is None:
                return await act(connection)
            await connection.execute(f"set local statement_timeout = {round(hold_seconds * 1000)}")
            began = database.clock.monotonic()
            found = await act(connection)
            if database.clock.monotonic() - began > hold_seconds:
                raise _HeldTooLong
            return found
    except DulyError as error:
        if began is not None and isinstance(error.__cause__, asyncpg.QueryCanceledError):
            raise _HeldTooLong from None
        raise


async def _make_vacuums_yield(connection: Any) -> None:
    """Wait for tables that are being vacuumed, in a mode that claims do not wait for.

    An autovacuum yields only to a waiter that has waited for `deadlock_timeout`, which is too long for any other mode.
    """
    await connection.execute(SQL["wait_for_vacuums"])
    for row in await connection.fetch(SQL["vacuumed"]):
        await connection.execute(f"lock table only {row[0]} in share update exclusive mode")


async def _shapes(connection: Any) -> tuple[frozenset[str], frozenset[str]]:
    """Return what programs may use, and what they have to give: columns that a new row must name."""
    rows = await connection.fetch(SQL["shapes"])
    return (
        frozenset(row["shape"] for row in rows),
        frozenset(row["shape"] for row in rows if row["is_required"]),
    )


def _broken(before: tuple[frozenset[str], frozenset[str]], after: tuple[frozenset[str], frozenset[str]]) -> list[str]:
    """Return what programs of before can no longer use, or would have to give: of their tables, not of new ones."""
    tables = {shape.partition(".")[0] for shape in before[0] if "." in shape.partition("(")[0]}
    required = {shape for shape in after[1] - before[1] if shape.partition(".")[0] in tables}
    return sorted(before[0] - after[0] | required)


async def _older(connection: Any, schema: int) -> list[Process]:
    """Return the live processes that know less than this schema."""
    return [Process(*row) for row in await connection.fetch(SQL["older"], schema, _ALIVE_SECONDS)]


def _refuse_beside(older: Sequence[Process], why: str) -> None:
    if older:
        raise _OlderAlive(
            f"{why}: {some(len(older), 'process', 'processes')} of an older version"
            f" {'runs' if len(older) == 1 else 'run'}: {few([one.words for one in older])}."
            f" Stop {'it' if len(older) == 1 else 'them'}, and try again"
        )


async def holder(database: Database) -> str:
    """Describe the oldest holder of one of our tables, as far as we may see it."""
    row = await database.fetchrow(SQL["holder"])
    return f"process {row['pid']} ({row['description']})" if row else "another session"


async def _not_ours(database: Database, error: Exception) -> str:
    """Explain why the role may not migrate, and which role may."""
    if owners := await database.fetch(SQL["owners"]):
        names = " or ".join(sorted(row[0] for row in owners))
        return f"the role may not change the schema duly: {error}. Migrate as its owner, {names}"
    return f"the role may not create the schema duly: {error}. Grant it CREATE on the database"


# --------------------------------------------------------------------------------------------------------------- checks


async def state(database: Connection) -> State:
    """Read what was applied. Raises DatabaseUnusable for data that this version must not touch."""
    return await _read(database)


async def _read(connection: Connection) -> State:
    [(exists,)] = await connection.fetch(SQL["exists"])
    rows = await connection.fetch(SQL["applied"]) if exists else []
    found = State(
        {row["version"]: row["name"] for row in rows},
        frozenset(row["version"] for row in rows if not row["is_finished"]),
    )
    _refuse_others(found)
    return found


async def plan(database: Database) -> Plan:
    """Return what would be done, without doing it. Raises DatabaseUnusable for data that this version must not touch."""
    found = await _read(database)
    missing = found.missing()
    unfinished = [migration for migration in known() if migration.version in found.unfinished]
    sizes = {row[0]: (row[1], row[2]) for row in await database.fetch(SQL["sizes"])}

    def touched(file: str, sql: str) -> list[Touched]:
        found = [(step, sizes.get(step.table or "")) for step in steps(sql)]
        return [Touched(file, step, *((None, None) if size is None else size)) for step, size in found]

    return Plan(
        schema=found.newest,
        steps=[one for migration in missing for one in touched(migration.file, migration.sql)],
        files=[file.name for file in in_force.known()] if not found.applied else await in_force.changed(database),
        unfinished=[migration.file for migration in unfinished],
        finish_steps=[one for migration in unfinished for one in touched(migration.file, migration.finish)],
        older=await _older(database, max(newest(), found.newest)) if found.applied else [],
        oldest_transaction_seconds=await database.fetchval(SQL["oldest_transaction"]),
    )


async def check(database: Database) -> None:
    """Check that this version may use the schema. Raises DatabaseUnusable, naming the remedy."""
    found = await state(database)
    if not found.applied:
        raise DatabaseUnusable("the database has no schema of Duly yet. Run `duly migrate`")
    if missing := found.missing():
        raise DatabaseUnusable(
            f"the schema lacks {some(len(missing), 'migration')}, from {missing[0].file} on. Run `duly migrate`"
        )
    await in_force.check(database)


def _refuse_others(found: State) -> None:
    """Refuse data of another version that this one can neither migrate nor share."""
    if found.applied.get(1, _BASELINE) != _BASELINE:
        raise DatabaseUnusable(
            "the data belongs to a development version of Duly and cannot be converted."
            " Export its schedules with that version (`duly export`), then start on a new database or data folder"
        )
    newer = {version for version in found.applied if version > newest()}
    if not newer <= found.unfinished:
        raise DatabaseUnusable(_newer(max(newer)))


def _newer(schema: int) -> str:
    return (
        f"the data belongs to a newer Duly (schema {schema}, this one knows {newest()})."
        " Upgrade Duly: pip install --upgrade duly"
    )
