"""Reads across the boxes: a job by name, a run's payload, and the overall state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.triggers.on_event import NEVER
from duly.store.boxes.options import decoded
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("reads/overview")
PREVIEW_CHARACTERS_MAX = 200


class NamedJob(msgspec.Struct, frozen=True):
    """A schedule found by its name."""

    job_id: UUID
    name: str
    state: str
    handler: str
    every_seconds: int | None
    anchor_at: datetime | None


class Backlog(msgspec.Struct, frozen=True):
    """The overall state, in one read."""

    read_at: datetime
    workers: int
    shards: int
    next_due_at: datetime | None
    reaped_at: datetime | None
    is_read_only: bool

    @property
    def lag_seconds(self) -> float:
        """Return how long ago the first unstaged timer was due."""
        return _lag(self.read_at, self.next_due_at)

    @property
    def reaper_age_seconds(self) -> float | None:
        """Return how long ago any process looked for lost workers; None when none ever did."""
        return None if self.reaped_at is None else max(0.0, (self.read_at - self.reaped_at).total_seconds())


async def job_by_name(database: Database, name: str, tenant: int = TENANT_DEFAULT) -> NamedJob | None:
    """Return the schedule of a name; one that has ended has none any more."""
    return await database.fetch_row_as(NamedJob, SQL["job_by_name"], tenant, name)


async def arguments(database: Database, run_id: UUID) -> dict[str, Any]:
    """Read the payload of a run, as JSON text, its options and its version; empty when the run is unknown.

    `is_kept` is false where the run has ended and its payload is no longer stored.
    """
    row = await database.fetchrow(SQL["arguments"], run_id) or await database.fetchrow(SQL["kept_arguments"], run_id)
    return decoded(row) if row else {}


async def payload_previews(database: Database, rows: Sequence[Mapping[str, Any]]) -> dict[UUID, str]:
    """Return the beginning of each run's payload as JSON text, by run id, for rows of a list of runs.

    A run whose payload is empty or no longer retained has none.
    """
    found = await database.fetch(
        SQL["payload_previews"],
        [row["run_id"] for row in rows],
        [row["finished_at"] for row in rows],
        PREVIEW_CHARACTERS_MAX,
    )
    return {row["run_id"]: _preview(row["payload"]) for row in found if row["payload"] != "{}"}


def _preview(text: str) -> str:
    return text if len(text) <= PREVIEW_CHARACTERS_MAX else f"{text[: PREVIEW_CHARACTERS_MAX - 1]}…"


async def finished_of_job(database: Database, job_id: UUID, since: datetime) -> list[dict[str, Any]]:
    """Read the attempts of a job that ended since a moment, and some seconds before it."""
    return [dict(row) for row in await database.fetch(SQL["finished_of_job"], job_id, since)]


async def staging_lag_seconds(database: Database) -> float:
    """Return how long ago the first unstaged timer was due."""
    return _lag(*await database.fetch_one(SQL["next_due"]))


def _lag(now: datetime, next_due_at: datetime | None) -> float:
    if next_due_at is None or next_due_at == NEVER:
        return 0.0
    return max(0.0, (now - next_due_at).total_seconds())


async def backlog(database: Database) -> Backlog:
    """Read the overall state once."""
    return Backlog(*await database.fetch_one(SQL["backlog"]))
