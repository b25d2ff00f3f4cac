"""Retire: a worker leaves the living, and what hangs on it without its knowledge goes back."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from duly.domain.runs.run import Run
from duly.store.boxes.leased import Handle
from duly.store.connection.database import Database
from duly.store.tables import workers


async def retire(database: Database, worker_id: UUID, held: Sequence[Run]) -> bool:
    """Leave for good, unless some of the runs still `held` have no outcome yet: then the lease runs out by itself."""
    return await workers.retire(database, worker_id, held)


async def leave(database: Database, worker_id: UUID, held: Sequence[Handle]) -> tuple[bool, list[Handle]]:
    """Do so by runs and fences; say as well what went back."""
    return await workers.leave(database, worker_id, held)
