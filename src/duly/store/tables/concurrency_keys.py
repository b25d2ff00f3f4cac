"""Concurrency keys and rate limits: slots, order, reservations, and limits set by people."""

from __future__ import annotations

from datetime import datetime

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/concurrency_keys")
WAITING_MAX = 10_000  # the maximum counted


class Reserved(msgspec.Struct, frozen=True):
    """The rate limits that were looked at, and the reservations granted."""

    looked: int
    given: int


class ConcurrencyKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key: how many runs hold a slot, how many wait for a slot or a reservation, and its limits."""

    key: str
    slots: int | None
    slots_used: int
    waiting: int
    is_fifo: bool
    per_second: float | None
    burst: int | None
    waiting_for_rate: int
    limit_slots: int | None
    limit_per_second: float | None
    limit_burst: int | None
    changed_at: datetime | None


async def reserve(database: Database, limit: int) -> Reserved:
    """Grant reservations of the rate limits that are due for a look."""
    return Reserved(*await database.fetch_one(SQL["reserve"], limit))


async def set_limits(
    database: Database, tenant: int, key: str, slots: int | None, rate: tuple[float, int] | None
) -> bool:
    """Set the limits of a key, or remove them where none is given. Returns whether there are, or were, any."""
    per_second, burst = rate or (None, None)
    return bool(await database.fetchval(SQL["limit_concurrency_key"], tenant, key, slots, per_second, burst))


async def page(database: Database, tenant: int, after: str | None, limit: int) -> list[ConcurrencyKey]:
    """Read keys in use, or limited, in their order."""
    rows = await database.fetch(SQL["page"], tenant, after or "", limit, WAITING_MAX)
    return [ConcurrencyKey(**dict(row)) for row in rows]


async def find(database: Database, tenant: int, key: str) -> ConcurrencyKey | None:
    """Read one key; None where it is neither in use nor limited."""
    row = await database.fetchrow(SQL["find"], tenant, key, 1, WAITING_MAX)
    return None if row is None else ConcurrencyKey(**dict(row))
