"""Waiting runs: maintenance checks their dependencies, lets them start at their rate, and ends those that have expired."""

from __future__ import annotations

from duly.store.boxes import runs
from duly.store.connection.database import Database
from duly.store.tables import concurrency_keys, dependencies

FOLLOWERS_MAX = 100  # looked at in one transaction
EXPIRED_MAX = 1_000  # in each box, by one statement
RATES_MAX = 1_000
TURNS_SECONDS = 0.25  # how often turns are given, while runs wait
IDLE_SECONDS = 0.5  # and while none does: turns are given for a second ahead, by whoever brings the first run


async def check_followers(database: Database) -> int:
    """Let runs go whose jobs before them had ended when they were submitted. Returns how many were looked at."""
    looked = total = await dependencies.check(database, FOLLOWERS_MAX)
    while looked == FOLLOWERS_MAX:
        total += (looked := await dependencies.check(database, FOLLOWERS_MAX))
    return total


async def expire(database: Database) -> int:
    """End all runs that wait and are worthless by now, however long no worker comes for them. Returns how many."""
    ended = 0
    while True:
        gone = await runs.expire(database, EXPIRED_MAX)
        ended += len(gone)
        if len(gone) < EXPIRED_MAX:
            return ended


async def pace(database: Database) -> int:
    """Return turns to runs that wait for their rate, so far ahead that they start on time and no further.

    Returns how many rates were looked at, the last time.
    """
    while True:
        paced = await concurrency_keys.pace(database, RATES_MAX)
        if paced.given < RATES_MAX:
            return paced.looked
