"""Concurrency keys and rate limits: slots, order, reservations, and limits set by people."""

from __future__ import annotations

from datetime import datetime

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/concurrency_keys")
WAITING_MAX = 10_000  # the maximum counted


class Paced(msgspec.Struct, frozen=True):
    """The rate limits that were looked at, and the reservations granted."""

    looked: int
    given: int


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """A key: how many runs hold a slot, how many wait for a slot or a reservation, and its limits."""

    key: str
    places: int | None
    inside: int
    waiting: int
    is_line: bool
    per_second: float | None
    burst: int | None
    waiting_turn: int
    limit_places: int | None
    limit_per_second: float | None
    limit_burst: int | None
    changed_at: datetime | None


async def pace(database: Database, limit: int) -> Paced:
    """Grant reservations of the rate limits that are due for a look."""
    return Paced(*await database.fetch_one(SQL["pace"], limit))


async def set_limits(
    database: Database, tenant: int, key: str, places: int | None, rate: tuple[float, int] | None
) -> bool:
    """Set the limits of a key, or remove them where none is given. Returns whether there are, or were, any."""
    per_second, burst = rate or (None, None)
    return bool(await database.fetchval(SQL["limit_gate"], tenant, key, places, per_second, burst))


async def page(database: Database, tenant: int, after: str | None, limit: int) -> list[Gate]:
    """Read keys in use, or limited, in their order."""
    rows = await database.fetch(SQL["page"], tenant, after or "", limit, WAITING_MAX)
    return [Gate(**dict(row)) for row in rows]


async def find(database: Database, tenant: int, key: str) -> Gate | None:
    """Read one key; None where it is neither in use nor limited."""
    row = await database.fetchrow(SQL["find"], tenant, key, 1, WAITING_MAX)
    return None if row is None else Gate(**dict(row))
