"""Shards: which scheduler fires which slice of the jobs. Their leases only save work: the moves are safe without them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from duly.domain.triggers.zones import zones
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/shards")
SHARDS = 64


async def lease(database: Database, scheduler_id: UUID, name: str, version: str, lease: timedelta) -> dict[int, int]:
    """Renew a scheduler's lease and settle its fair share: none where other time zone data is in force.

    Returns the epoch of each shard held.
    """
    values = (scheduler_id, name, version, lease, zones.database_version())
    return {row[0]: row[1] for row in await database.fetch(SQL["lease"], *values)}


async def release(database: Database, scheduler_id: UUID) -> None:
    """Release every shard at once."""
    await database.execute(SQL["release"], scheduler_id)


async def holders(database: Database) -> list[dict[str, Any]]:
    """Count the shards of each live scheduler."""
    return [dict(row) for row in await database.fetch(SQL["holders"])]
