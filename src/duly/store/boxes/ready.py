"""Ready runs, which start as soon as they are due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import asyncpg

from duly.domain.runs.run import Run
from duly.store.boxes.options import run_of
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("boxes/ready")

Subqueue = tuple[str, int, int]  # a queue, a tenant and a priority


async def claim(
    database: Database,
    worker_id: UUID,
    queues: Sequence[str],
    handlers: Sequence[str],
    limit: int,
    weights: Sequence[int] = (),
) -> list[Run]:
    """Lease up to `limit` runs to the worker. Raises WorkerExpired when its lease has ended."""
    return await _claim(database, SQL["claim"], worker_id, queues, weights, handlers, limit)


async def claim_all(
    database: Database,
    worker_id: UUID,
    queues: Sequence[str],
    handlers: Sequence[str],
    limit: int,
    weights: Sequence[int] = (),
) -> list[Run]:
    """Lease all that waits to the worker, or up to `limit` runs as `claim` does. Raises WorkerExpired."""
    return await _claim(database, SQL["claim_all"], worker_id, queues, weights, handlers, limit)


async def _claim(database: Database, statement: str, *values: Any) -> list[Run]:
    try:
        rows = await database.fetch(statement, *values)
        return [run_of(row) for row in rows]
    except asyncpg.UniqueViolationError:  # a run in ready is leased already
        await drop_duplicates(database)
        return []


async def drop_duplicates(database: Database) -> None:
    """Delete from ready the runs that are leased already, with a record."""
    await database.execute(SQL["drop_duplicates"])


async def mark_unroutable(
    database: Database, first: Subqueue, *, subqueues: int, backlog: int, backlog_more: int, looks: int
) -> tuple[int, Subqueue | None]:
    """Mark as unroutable the runs of one queue, tenant and priority whose handler no live worker has.

    Returns how many, and the next to check, if there is one.
    """
    row = await database.fetch_one(SQL["mark_unroutable"], *first, subqueues, backlog, backlog_more, looks)
    return row["moved"], None if row["queue"] is None else (row["queue"], row["tenant"], row["priority"])


async def restore_routable(database: Database, limit: int) -> int:
    """Make about `limit` unroutable runs claimable again whose handler a live worker has. Returns how many there were."""
    return int(await database.fetchval(SQL["restore_routable"], limit))


async def unroutable(database: Database) -> list[dict[str, Any]]:
    """Return the runs that wait because no live worker has their handler."""
    return [dict(row) for row in await database.fetch(SQL["unroutable"])]


async def depth(database: Database) -> list[dict[str, Any]]:
    """Count the ready runs of each queue, up to a bound, with the oldest due moment."""
    return [dict(row) for row in await database.fetch(SQL["depth"])]


async def depth_and_own(database: Database, tenant: int) -> list[dict[str, Any]]:
    """Count the ready runs of each queue, of all and of one tenant, up to a bound, with the oldest due moments."""
    return [dict(row) for row in await database.fetch(SQL["depth_and_own"], tenant)]
