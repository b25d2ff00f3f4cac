"""Stage: move what falls due within the horizon from timers into ready, and arm the next fires, in one statement."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

from duly.domain.run import HORIZON
from duly.store import timers
from duly.store.database import Database
from duly.store.timers import Staged

GRACE = timedelta(seconds=60)
BATCH_MAX = 10_000


async def stage(
    database: Database, holder: UUID, epochs: Mapping[int, int], *, horizon: timedelta = HORIZON, batch: int = BATCH_MAX
) -> Staged:
    """Stage one batch over the shards held. A stale epoch stages nothing."""
    staged = await timers.stage(database, holder, epochs, horizon, max(1, batch // max(1, len(epochs))), GRACE)
    database.clock.observe(staged.read_at)
    return staged
