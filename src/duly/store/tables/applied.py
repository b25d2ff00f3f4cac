"""Schedules from files: the state of the jobs of their names, and the version of each that the file applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from duly.domain.jobs.manifest_diff import Kept
from duly.store.boxes.options import decoded
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/applied")
_FILES_BEHIND, _FILE = (SQL["files"].format(which=f"files.source {sign} $2") for sign in (">", "="))
COUNTED_MAX = 20_000  # jobs of a file, including ended ones
_KEPT = len(Kept.__struct_fields__)
_WAS = (
    *("version", "handler", "payload", "queue", "priority", "options", "schedule"),
    *("every_seconds", "anchor_at"),
)


class AppliedFile(msgspec.Struct, frozen=True):
    """A file: when it was last applied and by whom, how many live jobs and rules it has, and how many have drifted."""

    source: str
    applied_at: datetime | None
    applied_by: str | None
    jobs: int
    drifted: int
    rules: int
    drifted_rules: int


class AppliedJob(msgspec.Struct, frozen=True):
    """A job of a file: its current state, and, if it has another version by now, the applied one, if still known."""

    now: Kept
    was: Kept | None
    changed_at: datetime | None

    @property
    def drift(self) -> Literal["changed", "cancelled"] | None:
        """The changes by others since."""
        if self.now.is_over:
            return "cancelled"
        return "changed" if self.now.version != self.now.applied else None


async def lock(database: Database, tenant: int) -> None:
    """Wait for any other apply of this tenant, and make others wait until the transaction ends."""
    await database.fetch(SQL["lock"], tenant)


async def standing(database: Database, tenant: int, source: str, names: Sequence[str]) -> dict[str, Kept]:
    """Read the jobs with these names, and all others that a file has created, by name."""
    rows = await database.fetch(SQL["standing"], tenant, source, list(names))
    return {row["name"]: _kept(row) for row in rows}


async def exported(database: Database, tenant: int, source: str, limit: int, *, by_hand: bool) -> list[Kept]:
    """Read the live jobs of a file by name, with or without named jobs that people have created."""
    return [_kept(row) for row in await database.fetch(SQL["exported"], tenant, source, by_hand, limit)]


async def sources(database: Database, tenant: int) -> dict[str, int]:
    """Read the files that have live jobs or rules, and how many."""
    return {row[0]: row[1] for row in await database.fetch(SQL["sources"], tenant)}


async def files(database: Database, tenant: int, after: str, limit: int) -> list[AppliedFile]:
    """Read the files after a name, in order of their names."""
    return [AppliedFile(*row) for row in await database.fetch(_FILES_BEHIND, tenant, after, limit, COUNTED_MAX)]


async def file(database: Database, tenant: int, source: str) -> AppliedFile | None:
    """Read one file."""
    return await database.fetch_row_as(AppliedFile, _FILE, tenant, source, 1, COUNTED_MAX)


async def file_jobs(
    database: Database, tenant: int, source: str, after: str, limit: int, *, drifted: bool
) -> list[AppliedJob]:
    """Read the jobs of a file after a name, in order of their names: all, or those that have drifted."""
    rows = await database.fetch(SQL["file_jobs"], tenant, source, after, drifted, limit)
    return [_applied_job(tuple(row)) for row in rows]


def _kept(row: Iterable[Any]) -> Kept:
    fields = dict(zip(Kept.__struct_fields__, row, strict=False))
    return Kept(**decoded(fields))


def _applied_job(row: tuple[Any, ...]) -> AppliedJob:
    now = _kept(row)
    *was, changed_at = row[_KEPT:]
    if was[0] is None or now.version == now.applied:
        return AppliedJob(now, None, changed_at if now.is_over else None)
    before = decoded(dict(zip(_WAS, was, strict=True)))
    if before["payload"] is None:  # a large payload that is stored no more cannot be compared
        before["payload"] = now.payload
    return AppliedJob(now, msgspec.structs.replace(now, **before), changed_at)


async def mark_applied(
    database: Database, tenant: int, source: str, versions: Mapping[UUID, int], by: str | None
) -> None:
    """Record that jobs belong to a file, which version of each it applied, and who applied it."""
    await database.execute(SQL["mark_applied"], tenant, source, list(versions), list(versions.values()), by)


async def mark_taken_out(database: Database, tenant: int, job_ids: Sequence[UUID]) -> None:
    """Record that a file removed jobs itself."""
    await database.execute(SQL["mark_taken_out"], tenant, list(job_ids))
