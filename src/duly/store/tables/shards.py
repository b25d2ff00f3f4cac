"""Shards: which scheduler fires which slice of the jobs. Their leases only save work: the moves are safe without them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any
from uuid import UUID

from duly.domain.triggers.zones import zones
from duly.store.connection.database import Database
from duly.store.connection.local import this_host
from duly.store.connection.statements import load

SQL = load("tables/shards")
SHARDS = 64


async def lease(
    database: Database,
    scheduler_id: UUID,
    name: str,
    version: str,
    lease: timedelta,
    *,
    host: str | None = None,
    named: Collection[int] | None = None,
) -> dict[int, int]:
    """Renew a scheduler's lease and settle its share: the shards that it has `named`, or its fair share of those that
    nobody names; none where other time zone data is in force, or on a drained host.

    Returns the epoch of each shard held.
    """
    shards = None if named is None else sorted(named)
    values = (scheduler_id, name, version, lease, zones.database_version(), host or this_host(), shards)
    return {row[0]: row[1] for row in await database.fetch(SQL["lease"], *values)}


async def release(database: Database, scheduler_id: UUID) -> None:
    """Release every shard at once."""
    await database.execute(SQL["release"], scheduler_id)


async def holders(database: Database) -> list[dict[str, Any]]:
    """Count the shards of each live scheduler."""
    return [dict(row) for row in await database.fetch(SQL["holders"])]
