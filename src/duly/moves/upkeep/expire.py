"""Expire: end runs that wait and are worthless by now, however long no worker comes for them."""

from __future__ import annotations

from duly.store.boxes import runs
from duly.store.connection.database import Database

BATCH_MAX = 1_000  # in each box, by one statement


async def expire(database: Database) -> int:
    """End all that has expired, in batches. Returns how many there were."""
    ended = 0
    while True:
        gone = await runs.expire(database, BATCH_MAX)
        ended += len(gone)
        if len(gone) < BATCH_MAX:
            return ended
