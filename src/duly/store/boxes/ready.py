"""What may run as soon as it is due."""

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

Line = tuple[str, int, int]  # a queue, a tenant and a priority


async def claim(
    database: Database,
    worker_id: UUID,
    queues: Sequence[str],
    handlers: Sequence[str],
    limit: int,
    weights: Sequence[int] = (),
) -> list[Run]:
    """Move up to `limit` runs into the worker's hands. Raises WorkerExpired when its lease has ended."""
    try:
        rows = await database.fetch(SQL["claim"], worker_id, queues, weights, handlers, limit)
        return [run_of(row) for row in rows]
    except asyncpg.UniqueViolationError:  # A run that is leased already stands in ready once more.
        await drop_duplicates(database)
        return []


async def drop_duplicates(database: Database) -> None:
    """Take out of ready what is leased already, with a record."""
    await database.execute(SQL["drop_duplicates"])


async def set_aside(
    database: Database, first: Line, *, lines: int, crowd: int, crowd_more: int, looks: int
) -> tuple[int, Line | None]:
    """Set aside what no live worker knows, of one line. Gives how many, and the line to go on with, if there is one."""
    row = await database.fetch_one(SQL["set_aside"], *first, lines, crowd, crowd_more, looks)
    return row["moved"], None if row["queue"] is None else (row["queue"], row["tenant"], row["priority"])


async def bring_back(database: Database, limit: int) -> int:
    """Put in line again about `limit` runs that stand aside and that a live worker knows. Returns how many there were."""
    return int(await database.fetchval(SQL["bring_back"], limit))


async def unknown_handlers(database: Database) -> list[dict[str, Any]]:
    """Name the runs that wait because no live worker knows their handler."""
    return [dict(row) for row in await database.fetch(SQL["unknown_handlers"])]


async def depth(database: Database) -> list[dict[str, Any]]:
    """Count what is ready in each queue, up to a bound, with the oldest due moment."""
    return [dict(row) for row in await database.fetch(SQL["depth"])]


async def depth_by_tenant(database: Database, queues_max: int, first: Sequence[str]) -> list[dict[str, Any]]:
    """Count what is ready of each tenant by queue: so many queues, `first` before the others, and the rest under no queue."""
    return [dict(row) for row in await database.fetch(SQL["depth_by_tenant"], queues_max, first)]


async def depth_and_own(database: Database, tenant: int) -> list[dict[str, Any]]:
    """Count what is ready in each queue, of all and of one tenant, up to a bound, with the oldest due moments."""
    return [dict(row) for row in await database.fetch(SQL["depth_and_own"], tenant)]
