"""Claim: move runs from ready into a worker's hands, in order of rank, under a new fence."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from duly.domain.run import Run
from duly.store import ready
from duly.store.database import Database


async def claim(
    database: Database, worker_id: UUID, queues: Sequence[str], handlers: Sequence[str], limit: int
) -> list[Run]:
    """Claim up to `limit` runs whose handlers the worker knows. Raises WorkerExpired when its lease has ended."""
    assert limit >= 1
    return await ready.claim(database, worker_id, queues, handlers, limit)
