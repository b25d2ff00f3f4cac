"""Time zone data: the version in force, and the pending fires that are still timed by another."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.triggers.zones import zones
from duly.domain.triggers.zones.zones import Edition
from duly.store.connection.database import Database
from duly.store.connection.statements import columns, load
from duly.store.tables.schedules import Retiming

SQL = load("tables/zones")


class ZoneData(msgspec.Struct, frozen=True):
    """The version in force, and how far the pending fires have been retimed by it.

    `changed` names the zones whose schedules are retimed, None all; `before` has the rules they were timed by, if
    known. `is_unanimous` is whether no live scheduler reports another version than ours.
    """

    version: str | None
    after: UUID | None
    changed: list[str] | None
    before: dict[str, bytes]
    is_settled: bool
    is_unanimous: bool


async def state(database: Database) -> ZoneData:
    """Read the version in force; None: nothing yet."""
    row = await database.fetch_one(SQL["state"], zones.database_version())
    version, after, changed, before, is_settled, is_unanimous = row
    return ZoneData(version, after, changed, _unpacked(before), bool(is_settled), bool(is_unanimous))


async def rules(database: Database, version: str) -> Edition:
    """Read the rules in force."""
    row = await database.fetchrow(SQL["rules"])
    return Edition(version, {} if row is None else _unpacked(row[0]))


async def adopt(database: Database, seen: ZoneData, changed: Sequence[str] | None, before: dict[str, bytes]) -> bool:
    """Put our version in force in place of the one that was read. False: another process was faster, or has another version."""
    ours = zones.current()
    packed = zones.pack(before) if before else None
    names = None if changed is None else list(changed)
    return bool(
        await database.fetchval(SQL["adopt"], seen.version, seen.after, ours.version, ours.packed, names, packed)
    )


class Zoned(msgspec.Struct, frozen=True):
    """A schedule that depends on a zone, with its next fire as read; `tzdb` is set where another version timed it."""

    job_id: UUID
    name: str
    generation: int
    scheduled_at: datetime
    previous_scheduled_at: datetime | None
    schedule: str
    calendars: str | None
    cohort: int
    tzdb: str | None
    created_at: datetime
    read_at: datetime


class Page(msgspec.Struct, frozen=True):
    """Schedules checked up to `last_id`, and those of them that matter; no id: none was left."""

    last_id: UUID | None
    zoned: list[Zoned]


async def page(database: Database, after: UUID | None, changed: Sequence[str] | None, limit: int) -> Page:
    """Read schedules in the order of their ids that depend on one of the zones, or on any without names."""
    names = None if changed is None else list(changed)
    rows = await database.fetch(SQL["page"], after, names, limit)
    return Page(rows[0][0] if rows else None, [_zoned(row) for row in rows if row[1] is not None])


async def timed_otherwise(database: Database, limit: int) -> list[Zoned]:
    """Read the schedules whose next fire was timed by a version that was not in force then."""
    return [_zoned(row) for row in await database.fetch(SQL["timed_otherwise"], limit)]


async def timed_rightly(database: Database, job_ids: Sequence[UUID]) -> None:
    """Record that fires timed by our version are timed by the one in force."""
    await database.execute(SQL["timed_rightly"], list(job_ids), zones.database_version())


async def retime(database: Database, timings: Sequence[Retiming], listed: Sequence[bool]) -> set[UUID]:
    """Retime next fires by our version, which is in force. One that has moved on is missing from the answer."""
    fires = columns(timings, "job_id", "generation", "seen", "cohort", "next_at", "window")
    rows = await database.fetch(SQL["retime"], zones.database_version(), *fires, list(listed))
    return {row[0] for row in rows}


async def swept(database: Database, seen_after: UUID | None, after: UUID | None) -> bool:
    """Record how far the fires are retimed; without an id, to the end. Returns whether all are."""
    return bool(await database.fetchval(SQL["swept"], zones.database_version(), seen_after, after))


class ZoneMove(msgspec.Struct, frozen=True):
    """A next fire that new time zone data has moved by more than a minute; without a `next_at` none is left."""

    job_id: UUID
    name: str | None
    tzdb: str
    was_at: datetime
    next_at: datetime | None
    moved_at: datetime


async def moves(database: Database, tenant: int, job_id: UUID | None, limit: int) -> list[ZoneMove]:
    """Read the moved fires, the newest first."""
    return [ZoneMove(*row) for row in await database.fetch(SQL["moves"], tenant, job_id, limit)]


def _unpacked(packed: bytes | None) -> dict[str, bytes]:
    return {} if packed is None else zones.unpack(packed)


def _zoned(row: Any) -> Zoned:
    return Zoned(*row[1:])
