"""Completion callbacks that trigger jobs with the outcome of a run."""

from __future__ import annotations

from uuid import UUID

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/callbacks")


FIRST = UUID(int=0)  # before all of them


class Pending(msgspec.Struct, frozen=True):
    """A pending callback, and the job that it triggers."""

    callback_id: UUID
    job_id: UUID


class Delivered(msgspec.Struct, frozen=True):
    """The run that it created, or the record that none was; and its queue."""

    run_id: UUID
    answer: str
    queue: str


async def pending(database: Database, after: UUID, limit: int) -> list[Pending]:
    """List pending callbacks, after one that was seen, the oldest first."""
    return [Pending(*row) for row in await database.fetch(SQL["pending"], after, limit)]


async def deliver(database: Database, callback_id: UUID) -> Delivered | None:
    """Trigger the job. None: another process has."""
    return await database.fetch_row_as(Delivered, SQL["deliver"], callback_id)
