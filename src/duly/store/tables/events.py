"""External events: each is accepted once, and creates one run of each job that matches it."""

from __future__ import annotations

from uuid import UUID

import msgspec

from duly.domain.runs.options import RunOptions
from duly.store.boxes.options import encode
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/events")


class Taken(msgspec.Struct, frozen=True):
    """The result of an event: whether it had come before, its runs, and the queues with new work."""

    is_duplicate: bool
    runs: list[UUID]
    queues: list[str]


async def take(
    database: Database, tenant: int, source: str, event_id: str, kind: str, event: str, options: RunOptions
) -> Taken:
    """Accept an event, as JSON text; `options` are laid over those of each job."""
    return Taken(*await database.fetch_one(SQL["take_event"], tenant, source, event_id, kind, event, encode(options)))
