"""Hosts: machines that are drained, so that whatever runs there takes nothing new, also what starts there later."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from duly.domain.diagnosis.doctor import DrainedHost
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/hosts")
HELD_MAX = 1_000


class Holding(msgspec.Struct, frozen=True):
    """A live process of a host, and what it holds: the runs of a worker, up to `HELD_MAX`, or the shards of a scheduler."""

    role: str
    name: str
    held: int


async def drain(database: Database, host: str) -> bool | None:
    """Let a host take nothing new. Returns whether that is new; None: no process has run there lately."""
    row = await database.fetch_one(SQL["drain"], host)
    return bool(row["is_new"]) if row["is_known"] else None


async def resume(database: Database, host: str) -> bool | None:
    """Let a host take work again. Returns whether that is new; None: it is neither drained nor known."""
    row = await database.fetch_one(SQL["resume"], host)
    return bool(row["is_new"]) if row["is_new"] or row["is_known"] else None


async def drained(database: Database) -> Sequence[DrainedHost]:
    """Read the drained hosts."""
    return [DrainedHost(*row) for row in await database.fetch(SQL["drained"])]


async def is_drained(database: Database, host: str) -> bool:
    """Return whether a host is drained."""
    return bool(await database.fetchval(SQL["is_drained"], host))


async def held(database: Database, host: str) -> list[Holding]:
    """Read what the live processes of a host hold."""
    return [Holding(*row) for row in await database.fetch(SQL["held"], host, HELD_MAX)]
