"""The plan of a migration: what `migrate` and `finish` would do, and the processes in their way. Nothing is changed."""

from __future__ import annotations

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load
from duly.store.schema import in_force, state
from duly.store.schema.older import Process, older
from duly.store.schema.steps import Step, steps

SQL = load("schema/plan")


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


async def plan(database: Database) -> Plan:
    """Return what would be done, without doing it. Raises DatabaseUnusable for data that this version must not touch."""
    found = await state.read(database)
    missing = found.missing()
    unfinished = [migration for migration in state.known() if migration.version in found.unfinished]
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
        older=await older(database, max(state.newest(), found.newest)) if found.applied else [],
        oldest_transaction_seconds=await database.fetchval(SQL["oldest_transaction"]),
    )
