"""Retire: a worker leaves the living, and what hangs on it without its knowledge goes back."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from duly.domain.run import Run
from duly.store import workers
from duly.store.database import Database


async def retire(database: Database, worker_id: UUID, held: Sequence[Run]) -> bool:
    """Leave for good, unless some of the runs still `held` have no outcome yet: then the lease runs out by itself."""
    return await workers.retire(database, worker_id, held)
