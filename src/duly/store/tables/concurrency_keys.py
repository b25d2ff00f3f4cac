"""Gates: what holds runs back by a key. Places, lines, turns at a rate, and the limits that somebody has set."""

from __future__ import annotations

from datetime import datetime

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/concurrency_keys")
WAITING_MAX = 10_000  # Counted so far.


class Paced(msgspec.Struct, frozen=True):
    """How many rates were looked at, and how many turns were given."""

    looked: int
    given: int


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is: how many runs are inside and how many wait, for a place and for a turn, and what was set for it."""

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
    """Return turns at the rates that are to be looked at."""
    return Paced(*await database.fetch_one(SQL["pace"], limit))


async def set_limits(
    database: Database, tenant: int, key: str, places: int | None, rate: tuple[float, int] | None
) -> bool:
    """Set the limits of a key, or take them away where none is given. Says whether some stand, or stood."""
    per_second, burst = rate or (None, None)
    return bool(await database.fetchval(SQL["limit_gate"], tenant, key, places, per_second, burst))


async def page(database: Database, tenant: int, after: str | None, limit: int) -> list[Gate]:
    """Read keys in use, or limited, in their order."""
    rows = await database.fetch(SQL["page"], tenant, after or "", limit, WAITING_MAX)
    return [Gate(**dict(row)) for row in rows]


async def find(database: Database, tenant: int, key: str) -> Gate | None:
    """Read one key; nothing where it is neither in use nor limited."""
    row = await database.fetchrow(SQL["find"], tenant, key, 1, WAITING_MAX)
    return None if row is None else Gate(**dict(row))
