"""Schedules kept in a file: how the jobs of its names stand, and which version of each is the file's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from duly.domain.manifest_diff import Kept
from duly.store.database import Database
from duly.store.statements import load

SQL = load("applied")


async def lock(database: Database, tenant: int) -> None:
    """Wait until no other apply of this tenant is under way, and keep others waiting until the transaction ends."""
    await database.fetch(SQL["lock"], tenant)


async def standing(database: Database, tenant: int, source: str, names: Sequence[str]) -> dict[str, Kept]:
    """Read the jobs that have these names, and all others that a file has made, by name."""
    rows = await database.fetch(SQL["standing"], tenant, source, list(names))
    return {row["name"]: Kept(*row) for row in rows}


async def exported(database: Database, tenant: int, source: str, limit: int, *, by_hand: bool) -> list[Kept]:
    """Read the live jobs of a file by name, with or without those that people have made and named."""
    return [Kept(*row) for row in await database.fetch(SQL["exported"], tenant, source, by_hand, limit)]


async def sources(database: Database, tenant: int) -> dict[str, int]:
    """Read the files that have live jobs, and how many."""
    return {row[0]: row[1] for row in await database.fetch(SQL["sources"], tenant)}


async def unnamed(database: Database, tenant: int) -> int:
    """Count the live schedules that people have made without a name."""
    return int(await database.fetchval(SQL["unnamed"], tenant))


async def mark_applied(database: Database, tenant: int, source: str, versions: Mapping[UUID, int]) -> None:
    """Note that jobs belong to a file, and which version of each is as the file says."""
    await database.execute(SQL["mark_applied"], tenant, source, list(versions), list(versions.values()))


async def mark_taken_out(database: Database, tenant: int, job_ids: Sequence[UUID]) -> None:
    """Note that a file took jobs away itself."""
    await database.execute(SQL["mark_taken_out"], tenant, list(job_ids))
