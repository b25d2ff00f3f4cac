"""Schedules declared in code: the declarations of live workers, and the state of the jobs of those names."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from duly.domain.jobs.declaration import Standing, digests_by_name
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/declared")


async def live(database: Database, tenant: int) -> dict[str, set[bytes]]:
    """Read the declarations of live workers: for each name, their hashes."""
    return digests_by_name([row[0] for row in await database.fetch(SQL["live"])], tenant)


async def standing(database: Database, tenant: int, source: str, names: Sequence[str]) -> dict[str, Standing]:
    """Read the jobs with these names, and all others that a program has declared, by name."""
    rows = await database.fetch(SQL["standing"], tenant, source, list(names))
    return {row["name"]: Standing(*row) for row in rows}


async def mark_removed(database: Database, job_id: UUID) -> None:
    """Record that no program declares a job any more."""
    await database.execute(SQL["mark_removed"], job_id)


async def mark_declared(database: Database, job_id: UUID) -> None:
    """Record that a program declares a job again."""
    await database.execute(SQL["mark_declared"], job_id)
