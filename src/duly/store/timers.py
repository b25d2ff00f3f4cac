"""What is due at a moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.store.database import Database
from duly.store.statements import load

SQL = load("timers")


class Staged(msgspec.Struct, frozen=True):
    """How many timers were moved, when the next one falls due, and the database's time."""

    count: int
    next_due_at: datetime | None
    read_at: datetime


async def stage(
    database: Database, holder: UUID, epochs: Mapping[int, int], horizon: timedelta, per_shard: int, grace: timedelta
) -> Staged:
    """Move what falls due within the horizon, over all shards held."""
    row = await database.fetchrow(SQL["stage"], holder, list(epochs), list(epochs.values()), horizon, per_shard, grace)
    assert row is not None
    return Staged(*row)
