"""Recoveries: fires missed while no scheduler staged, and the decisions about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.jobs.recovery import Rule
from duly.domain.triggers.schedule.planning import Skip
from duly.store.connection.database import Database
from duly.store.connection.statements import columns, load

SQL = load("tables/recovery")
OPEN, APPROVED, DISMISSING = "open", "approved", "dismissing"
LIVE = (OPEN, APPROVED, DISMISSING)


class Standing(msgspec.Struct, frozen=True):
    """An open recovery, as a scheduler needs it."""

    recovery_id: UUID
    state: str
    opened_at: datetime
    rate: float | None
    is_new: bool
    rules: tuple[Rule, ...]


class Recovery(msgspec.Struct, frozen=True):
    """A recovery as people see it. Without `down_since`, it took over catch-ups that were under way. With `backup_at`, the
    database was restored from a backup of that moment.
    """

    recovery_id: UUID
    state: str
    down_since: datetime | None
    opened_at: datetime
    decided_at: datetime | None
    decided_by: str | None
    rate: float | None
    ended_at: datetime | None
    backup_at: datetime | None
    read_at: datetime
    rules: tuple[Rule, ...]


class InFlight(msgspec.Struct, frozen=True):
    """A run that was in flight at the backup that was restored, and the worker that held it."""

    run_id: UUID
    job_id: UUID
    tenant: int
    queue: str
    handler: str
    attempt: int
    scheduled_at: datetime
    worker: str


class HeldSpan(msgspec.Struct, frozen=True):
    """A missed span that waits for a decision, with the inputs of its occurrences."""

    backfill_id: UUID
    job_id: UUID
    tenant: int
    from_at: datetime
    to_at: datetime
    total: int
    schedule: str | None
    every_seconds: int | None
    anchor_at: datetime | None
    calendars: Mapping[str, Any]


class Decided(msgspec.Struct, frozen=True):
    """The decision on a missed span: from where to where it is created, how many runs that is, and what is left out."""

    backfill_id: UUID
    from_at: datetime | None
    to_at: datetime | None
    total: int
    skips: Sequence[Skip]


class Stretch(HeldSpan, frozen=True):
    """A missed span, held or under way."""

    name: str | None
    queue: str
    created: int
    rate: float
    is_waiting: bool


class Totals(msgspec.Struct, frozen=True):
    """The progress of a recovery: spans held and decided, runs created and to be created, occurrences undecided."""

    held: int
    decided: int
    created: int
    to_make: int
    missed: int


async def record_staging(database: Database, after: timedelta | None, recovery_id: UUID) -> Standing | None:
    """Record that a scheduler stages; after too long without one, open a recovery. Returns the open one."""
    row = await database.fetchrow(SQL["record_staging"], after, recovery_id)
    return None if row is None else Standing(**{**row, "rules": _rules(row["rules"])})


async def defer_late(database: Database, holder: UUID, epochs: Mapping[int, int], looked_at: int) -> int:
    """Hold the missed fires of plain intervals, and arm their next fires. Returns how many."""
    return int(await database.fetchval(SQL["defer_late"], holder, list(epochs), list(epochs.values()), looked_at))


async def last(database: Database) -> Recovery | None:
    """Read the open recovery, or else the last one."""
    row = await database.fetchrow(SQL["last"])
    return None if row is None else Recovery(**{**row, "rules": _rules(row["rules"])})


async def held(database: Database, recovery_id: UUID, shards: Sequence[int], limit: int) -> list[HeldSpan]:
    """Read the spans that wait for a decision, of the held shards."""
    rows = await database.fetch(SQL["held"], recovery_id, list(shards), limit)
    return [HeldSpan(**{**row, "calendars": _calendars(row["calendars"])}) for row in rows]


async def under_way(database: Database, recovery_id: UUID, shards: Sequence[int], limit: int) -> int:
    """Count the spans that are being created, up to a bound."""
    return int(await database.fetchval(SQL["under_way"], recovery_id, list(shards), limit))


async def decide(database: Database, recovery_id: UUID, decided: Sequence[Decided]) -> int:
    """Decide on missed spans. Returns how many; one that another process has decided stays so."""
    stretches = columns(decided, "backfill_id", "from_at", "to_at", "total")
    skips = [msgspec.json.encode(one.skips).decode() for one in decided]
    return int(await database.fetchval(SQL["decide"], recovery_id, *stretches, skips))


async def take_reservations(database: Database, recovery_id: UUID, wanted: int) -> int:
    """Reserve runs at the rate of a recovery, which all schedulers share. Returns how many are granted."""
    return int(await database.fetchval(SQL["take_reservations"], recovery_id, wanted))


async def drop(database: Database, shards: Sequence[int], limit: int) -> int:
    """Leave out the rest of some dismissed spans. Returns how many."""
    return int(await database.fetchval(SQL["drop"], list(shards), limit))


async def close(database: Database, recovery_id: UUID) -> str | None:
    """Close a recovery of which nothing is left. Returns how it ended; None: it goes on."""
    found: str | None = await database.fetchval(SQL["close"], recovery_id)
    return found


async def approve(
    database: Database, recovery_id: UUID, rules: Sequence[Rule] | None, rate: float | None, by: str
) -> bool:
    """Approve a recovery, with other rules or another rate where they are given. False: it has ended."""
    written = None if rules is None else msgspec.json.encode(rules).decode()
    return bool(await database.fetch(SQL["approve"], recovery_id, written, rate, by))


async def dismiss(database: Database, recovery_id: UUID, by: str) -> bool:
    """Dismiss the runs that are not created yet. False: it has ended."""
    return bool(await database.fetch(SQL["dismiss"], recovery_id, by))


async def hold_restored(database: Database, backup_at: datetime) -> UUID:
    """Void every lease, pause everything and open a recovery, in a database that is as it was at a backup."""
    recovery_id: UUID = await database.fetchval(SQL["hold_restored"], backup_at)
    return recovery_id


async def let_go_restored(database: Database, recovery_id: UUID) -> bool:
    """Give the reaper the runs that were in flight, and end the pause of the restore. False: there is no such pause."""
    return bool(await database.fetchval(SQL["let_go_restored"], recovery_id))


async def in_flight(database: Database, limit: int) -> list[InFlight]:
    """Read runs that were in flight at the backup, and wait for the decision."""
    return [InFlight(*row) for row in await database.fetch(SQL["in_flight"], limit)]


async def due(database: Database, at: datetime, limit: int) -> int:
    """Count the runs that were due at a moment, up to a bound."""
    return min(limit, int(await database.fetchval(SQL["due"], at, limit)))


async def take_over(database: Database, recovery_id: UUID, by: str, limit: int) -> bool:
    """Turn the catch-ups under way into a recovery. False: there are none, or a recovery is open."""
    return await database.fetchval(SQL["take_over"], recovery_id, by, limit) is not None


async def stretches(database: Database, recovery_id: UUID | None, limit: int) -> list[Stretch]:
    """Read the spans held or under way, of a recovery or, without one, by policy; the largest first."""
    rows = await database.fetch(SQL["stretches"], recovery_id, limit)
    return [Stretch(**{**row, "calendars": _calendars(row["calendars"])}) for row in rows]


async def totals(database: Database, recovery_id: UUID) -> Totals:
    """Count the progress of a recovery."""
    row = await database.fetch_one(SQL["totals"], recovery_id)
    return Totals(*map(int, row))


def _rules(text: str) -> tuple[Rule, ...]:
    return msgspec.json.decode(text, type=tuple[Rule, ...])


def _calendars(found: str | None) -> dict[str, Any]:
    return {} if found is None else msgspec.json.decode(found, type=dict[str, Any])
