"""Pace: give turns to runs that wait for their rate, so far ahead that they start on time and no further."""

from __future__ import annotations

from duly.store.connection.database import Database
from duly.store.tables import concurrency_keys

RATES_MAX = 1_000
TURNS_SECONDS = 0.25  # how often, while runs wait
IDLE_SECONDS = 0.5  # and while none does: turns are given for a second ahead, by whoever brings the first run


async def pace(database: Database) -> int:
    """Give all turns that may be given now. Returns how many rates were looked at, the last time."""
    while True:
        paced = await concurrency_keys.pace(database, RATES_MAX)
        if paced.given < RATES_MAX:
            return paced.looked
