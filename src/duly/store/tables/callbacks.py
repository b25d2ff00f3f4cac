"""Jobs that are to be triggered with the outcome of a run."""

from __future__ import annotations

from uuid import UUID

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/callbacks")


FIRST = UUID(int=0)  # before all of them


class Pending(msgspec.Struct, frozen=True):
    """What has not been told, and the job that is to hear it."""

    callback_id: UUID
    job_id: UUID


class Delivered(msgspec.Struct, frozen=True):
    """The run that was made of it, or the record that none was; and its queue."""

    run_id: UUID
    answer: str
    queue: str


async def pending(database: Database, after: UUID, limit: int) -> list[Pending]:
    """List what has not been told, behind one that was seen, the oldest first."""
    return [Pending(*row) for row in await database.fetch(SQL["pending"], after, limit)]


async def deliver(database: Database, callback_id: UUID) -> Delivered | None:
    """Trigger the job. None: somebody else has."""
    return await database.fetch_row_as(Delivered, SQL["deliver"], callback_id)
