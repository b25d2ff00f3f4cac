"""Destinations: their limits, their health, each worker's share of them, and their sealed secrets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from duly.domain.targets.circuit import AHEAD_SECONDS, Health, Queue, State, StateChange
from duly.domain.targets.destination import RETRY_SHARE_DEFAULT
from duly.domain.tenancy.sealing import Sealed
from duly.store.connection.database import Database
from duly.store.connection.statements import columns, load

SQL = load("tables/destinations")
_FIRST = (datetime.min.replace(year=1970, tzinfo=UTC), UUID(int=0))
_ALLOWED = ("destination_id", "tenant", "origin", "is_contended", "retry_share", "workers", "rate", "read_at")
_QUEUE = ("slots", "in_flight", "waiting", "answers_per_second", "rate", "retry_share", "rejects")
_REPORTED = (
    *("fresh_id", "tenant", "origin", "healthy", "failing", "streak", "requested_seconds", "in_flight", "waiting"),
    *("wanted", "holds", "tokens", "spare", "retries", "rejected"),
)
_HEALTH = tuple(name for name in Health.__struct_fields__ if name != "state")


class DestinationReport(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's report on one destination since the last, and what it still uses."""

    fresh_id: UUID  # its id, should it be new
    tenant: int
    origin: str
    healthy: int = 0
    failing: int = 0
    streak: int = 0  # failures since the last healthy response
    requested_seconds: float = 0.0  # the Retry-After that it asked for
    in_flight: int = 0
    waiting: int = 0
    wanted: int = 0  # slots
    holds: int = 0  # no more than this is under way, or starts before the response
    tokens: int = 0  # wanted for runs that wait without a reservation
    spare: int = 0  # wanted beyond, for expected runs
    retries: int = 0  # sent
    rejected: int = 0  # retries that had to wait for the budget


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a destination that a worker has until its next report. Tokens of None: there is no rate limit.

    Each token is a reservation: the first is at `first_seconds` after `read_at`, and each next one `1 / rate` later.
    `is_contended`: other workers wait for slots. `has_turned`: its state has just changed, so another report is
    answered otherwise.
    """

    destination_id: UUID
    tenant: int
    origin: str
    slots: int
    tokens: int | None
    health: Health
    is_contended: bool = False
    has_turned: bool = False
    retry_share: float = RETRY_SHARE_DEFAULT
    workers: int = 1  # that report it
    rate: float | None = None
    first_seconds: float = 0.0
    read_at: datetime | None = None  # by the database's clock


class WatchedDestination(msgspec.Struct, frozen=True, kw_only=True):
    """A destination that needs attention; one without a row yet has no id."""

    destination_id: UUID | None
    tenant: int
    origin: str
    has_waiting_runs: bool
    released_at: datetime | None = None
    health: Health = Health()
    queue: Queue = Queue()


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """A destination as people see it. `wait_until`: until when nothing is sent to it, if so."""

    destination_id: UUID
    tenant: int
    origin: str
    created_at: datetime
    slots: int
    rate_per_second: float | None
    state: State
    state_version: int
    state_changed_at: datetime
    openings: int
    read_at: datetime
    wait_until: datetime | None
    steady_rate: float | None
    ramp_rate: float | None
    in_flight: int
    waiting: int
    healthy_total: int
    failing_total: int
    retry_share: float
    retries_total: int
    rejected_total: int
    waiting_runs: int  # runs that wait for it, counted up to 10,000


class WaitingRun(msgspec.Struct, frozen=True):
    """A run that waits for a destination; `attempt` is how many attempts it has used."""

    run_id: UUID
    job_id: UUID
    scheduled_at: datetime
    due_at: datetime
    attempt: int
    queue: str
    blocked_at: datetime


class FailedAttempt(msgspec.Struct, frozen=True):
    """An attempt that failed at a destination. No status: there was no response."""

    run_id: UUID
    job_id: UUID
    attempt: int
    finished_at: datetime
    outcome: str
    status: int | None
    reason: str | None


class SealedSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret as stored."""

    number: int
    sealed: Sealed
    created_at: datetime
    retires_at: datetime | None


class Totals(msgspec.Struct, frozen=True):
    """The totals of all destinations, for metrics."""

    states: dict[str, int]
    in_flight: int
    healthy: int
    failing: int
    retries: int
    rejected: int
    waiting_runs: int


async def report(
    database: Database, worker_id: UUID, number: int, reported: Sequence[DestinationReport]
) -> list[Allowed]:
    """Report on destinations, in one statement. Raises WorkerExpired."""
    seen = columns(reported, *_REPORTED)
    rows = await database.fetch(SQL["report"], worker_id, number, *seen, AHEAD_SECONDS)
    return [_allowed(row) for row in rows]


async def waiting_page(
    database: Database, tenant: int, origin: str, after: tuple[datetime, UUID] | None, limit: int
) -> list[WaitingRun]:
    """Read the runs that wait for an origin, in the order in which they go on."""
    rows = await database.fetch(SQL["waiting_page"], tenant, origin, *(after or _FIRST), limit)
    return [WaitingRun(*row) for row in rows]


async def failures_page(
    database: Database, tenant: int, origin: str, before: tuple[datetime, UUID, int] | None, limit: int
) -> list[FailedAttempt]:
    """Read the failures at an origin, the last first, as long as history is kept."""
    rows = await database.fetch(SQL["page_failures"], tenant, origin, *(before or (None, None, None)), limit)
    return [FailedAttempt(*row) for row in rows]


async def change_state(database: Database, destination_id: UUID, seen: int, to: StateChange) -> bool:
    """Change the state of a destination. False: its state has changed since it was read."""
    values = (to.state, to.openings, to.wait_seconds, to.ramp_rate, to.ramp_grows)
    return bool(await database.fetchval(SQL["change_destination_state"], destination_id, seen, *values))


async def watched(database: Database, after: WatchedDestination | None, limit: int) -> list[WatchedDestination]:
    """Return the destinations that runs wait for, after one that was seen; first of all also open ones that may be
    probed.

    They come by tenant and origin.
    """
    tenant, origin = (None, None) if after is None else (after.tenant, after.origin)
    return [_watched(row) for row in await database.fetch(SQL["watched"], tenant, origin, limit)]


async def release(database: Database, going: Sequence[tuple[WatchedDestination, int]]) -> int:
    """Release so many waiting runs of each destination. Returns how many."""
    seen = columns([one for one, _ in going], "destination_id", "released_at")
    rows = await database.fetch(SQL["release"], *seen, [count for _, count in going])
    return sum(row["released"] for row in rows)


async def make(database: Database, fresh_id: UUID, tenant: int, origin: str) -> UUID:
    """Create a destination, if there is none. Returns its id."""
    await database.fetchval(SQL["create_destination"], fresh_id, tenant, origin)
    created = await find_by_origin(database, tenant, origin)
    assert created is not None
    return created


async def find_by_origin(database: Database, tenant: int, origin: str) -> UUID | None:
    """Return the id of a destination, if it is known."""
    found: UUID | None = await database.fetchval(SQL["find_by_origin"], tenant, origin)
    return found


async def find(database: Database, tenant: int, destination_id: UUID) -> Destination | None:
    """Read a destination of a tenant."""
    return await database.fetch_row_with(_destination, SQL["find"], tenant, destination_id)


async def page(database: Database, tenant: int, after: str | None, size: int) -> list[Destination]:
    """Read a tenant's destinations in order of their origins."""
    return [_destination(row) for row in await database.fetch(SQL["page"], tenant, after or "", size)]


async def limit_destination(
    database: Database,
    destination_id: UUID,
    slots: int | UnsetType,
    rate: float | UnsetType | None,
    retry_share: float | UnsetType,
) -> bool:
    """Set the limits of a destination; unset ones stay. False: there is none of that id."""
    return bool(
        await database.fetchval(
            SQL["limit_destination"],
            destination_id,
            None if slots is UNSET else slots,
            None if rate is UNSET else rate,
            rate is not UNSET,
            None if retry_share is UNSET else retry_share,
        )
    )


async def find_secrets(database: Database, destination_id: UUID) -> list[SealedSecret]:
    """Read the valid secrets of a destination, the newest first."""
    return [_secret(row) for row in await database.fetch(SQL["find_secrets"], destination_id)]


async def newest_number(database: Database, destination_id: UUID) -> int:
    """Return the number of a destination's newest secret; 0 when it has none."""
    return int(await database.fetchval(SQL["newest_number"], destination_id))


async def keep_secret(database: Database, destination_id: UUID, number: int, sealed: Sealed, kept: timedelta) -> bool:
    """Store a secret as the newest; the one before stays valid for `kept`. False: that number is taken."""
    return bool(await database.fetchval(SQL["keep_secret"], destination_id, number, sealed.body, sealed.key_id, kept))


async def totals(database: Database, limit: int) -> Totals:
    """Add up the state of all destinations."""
    rows = await database.fetch(SQL["totals"])
    sums = {name: int(sum(row[name] for row in rows)) for name in ("healthy", "failing", "retries", "rejected")}
    in_flight = int(await database.fetchval(SQL["in_flight_in_all"]))
    waiting_runs = await database.fetchval(SQL["waiting_in_all"], limit)
    return Totals(
        states={row["state"]: row["destinations"] for row in rows},
        **sums,
        in_flight=in_flight,
        waiting_runs=waiting_runs,
    )


def _allowed(row: Any) -> Allowed:
    copied = {name: row[name] for name in _ALLOWED}
    return Allowed(
        **copied,
        slots=row["ceiling"],
        tokens=row["granted"],
        health=_health(row),
        first_seconds=row["first_seconds"] or 0.0,
    )


def _watched(row: Any) -> WatchedDestination:
    copied = {name: row[name] for name in ("destination_id", "tenant", "origin", "has_waiting_runs", "released_at")}
    if row["destination_id"] is None:
        return WatchedDestination(**copied)
    health = _health(row)
    queue = Queue(
        state=health.state,
        is_waiting=max(health.wait_seconds, health.requested_seconds) > 0,
        tokens=row["tokens"] or 0.0,
        **{name: row[name] for name in _QUEUE},
    )
    return WatchedDestination(**copied, health=health, queue=queue)


def _health(row: Any) -> Health:
    return Health(state=State(row["state"]), **{name: row[name] for name in _HEALTH})


def _destination(row: Any) -> Destination:
    fields = {name: row[name] for name in Destination.__struct_fields__}
    return Destination(**{**fields, "state": State(row["state"])})


def _secret(row: Any) -> SealedSecret:
    copied = {name: row[name] for name in ("number", "created_at", "retires_at")}
    return SealedSecret(sealed=Sealed(row["key_id"], row["sealed"]), **copied)
