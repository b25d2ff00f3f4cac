"""Waiting runs: maintenance checks their dependencies, lets them start at their rate, and ends those that have expired."""

from __future__ import annotations

from duly.store.boxes import runs
from duly.store.connection.database import Database
from duly.store.tables import concurrency_keys, dependencies

DEPENDENTS_MAX = 100  # checked in one transaction
EXPIRED_MAX = 1_000  # in each box, by one statement
RATES_MAX = 1_000
RESERVATIONS_SECONDS = 0.25  # how often reservations are granted, while runs wait
IDLE_SECONDS = 0.5  # and while none does: reservations are granted for a second ahead, by the first run that comes


async def check_dependents(database: Database) -> int:
    """Release runs whose dependencies had ended when they were submitted. Returns how many were checked."""
    looked = total = await dependencies.check(database, DEPENDENTS_MAX)
    while looked == DEPENDENTS_MAX:
        total += (looked := await dependencies.check(database, DEPENDENTS_MAX))
    return total


async def expire(database: Database) -> int:
    """End all waiting runs that have expired, however long no worker comes for them. Returns how many."""
    ended = 0
    while True:
        expired = await runs.expire(database, EXPIRED_MAX)
        ended += len(expired)
        if len(expired) < EXPIRED_MAX:
            return ended


async def reserve(database: Database) -> int:
    """Grant reservations to runs that wait at a rate limit, just far enough ahead that they start on time.

    Returns how many rate limits the last round looked at.
    """
    while True:
        reserved = await concurrency_keys.reserve(database, RATES_MAX)
        if reserved.given < RATES_MAX:
            return reserved.looked
