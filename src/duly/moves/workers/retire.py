"""Retire: a worker that has stopped deregisters, and runs that it does not know it holds go back to their queues."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from duly.domain.runs.run import Run
from duly.store.boxes.leased import Handle
from duly.store.connection.database import Database
from duly.store.tables import workers


async def retire(database: Database, worker_id: UUID, held: Sequence[Run]) -> bool:
    """Deregister a worker, unless some runs still `held` have no outcome yet: then its lease expires by itself."""
    return (await leave(database, worker_id, [(run.run_id, run.fence) for run in held]))[0]


async def leave(database: Database, worker_id: UUID, held: Sequence[Handle]) -> tuple[bool, list[Handle]]:
    """Deregister a worker that names the runs it holds by run and fence. Returns whether it has, and what went back."""
    return await workers.leave(database, worker_id, held)
