"""Claim: lease ready runs to a worker, under a new fence.

Queues and tenants share by weight, and within a tenant runs go by rank, at the moment of the claim.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from duly.domain.runs.run import Run
from duly.store.boxes import ready
from duly.store.connection.database import Database


async def claim(
    database: Database,
    worker_id: UUID,
    queues: Sequence[str],
    handlers: Sequence[str],
    limit: int,
    weights: Sequence[int] = (),
) -> list[Run]:
    """Claim up to `limit` runs whose handlers the worker has; a queue without a weight weighs 1. Raises WorkerExpired."""
    assert limit >= 1
    return await ready.claim(database, worker_id, queues, handlers, limit, weights)


async def claim_all(
    database: Database,
    worker_id: UUID,
    queues: Sequence[str],
    handlers: Sequence[str],
    limit: int,
    weights: Sequence[int] = (),
) -> list[Run]:
    """Claim for a worker that was idle: all that waits, if it is at most `limit` runs; else as `claim`. Raises WorkerExpired.

    It costs less where there is nothing to share out, and more in a backlog.
    """
    assert limit >= 1
    return await ready.claim_all(database, worker_id, queues, handlers, limit, weights)
