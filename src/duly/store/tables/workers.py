"""Worker processes: one row each, which all their leases depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.diagnosis.apps import Offer
from duly.domain.limits.scaling import slots_for
from duly.domain.runs.run import Run
from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("tables/workers")


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker's row."""

    worker_id: UUID
    name: str
    version: str
    queues: list[str]
    handlers: list[str]
    slots: int
    lease: timedelta
    started_at: datetime
    heartbeat: int
    until: datetime
    read_at: datetime
    tenant: int | None = None  # None: it serves every tenant
    weights: list[int] = []  # of its queues, in their order; empty: all alike
    pools: Mapping[str, int] = {}  # its slots, by target
    is_draining: bool = False  # it claims nothing more, and finishes what it holds
    stalled_at: datetime | None = None  # since when it starts nothing, because a handler blocks it
    stalled_in: list[str] = []  # the handlers, if known
    app: str | None = None  # the app of its handlers; None: over HTTP, or targets alone

    def slots_for(self, handler: str | None) -> int:
        """Return how many runs of a handler it runs at once."""
        return slots_for(self.slots, self.pools, handler)

    def serves(self, tenant: int) -> bool:
        """Return whether it is alive, claims runs, and may run those of a tenant."""
        return self.until > self.read_at and self.tenant in (None, tenant) and not self.is_draining


class ExpiredWorker(msgspec.Struct, frozen=True):
    """A lost worker: it started nothing due after `safe_until`; `named` are the suspects it announced."""

    worker_id: UUID
    name: str
    safe_until: datetime
    named: list[str]

    def has_named(self, run: Run) -> bool:
        """Return whether it announced this run under this very lease."""
        return name_of(run) in self.named


def name_of(run: Run) -> str:
    """Return the name of a run under its lease."""
    return f"{run.run_id}/{run.fence}"


class Identity(msgspec.Struct, frozen=True):
    """The identity of a worker at its start. The id is random per process start, never a host name."""

    worker_id: UUID
    name: str
    version: str
    queues: Sequence[str]
    handlers: Sequence[str]
    slots: int
    lease: timedelta
    declares: Sequence[str] = ()
    weights: Sequence[int] = ()  # of its queues, in their order; empty: all alike
    pools: Mapping[str, int] = {}  # its slots by the names of targets, and under FUNCTIONS
    app: str | None = None  # the name of its app, or else its path
    host: str | None = None  # the machine it runs on; None: not known, as over HTTP


async def register(database: Database, identity: Identity) -> None:
    """Register the worker."""
    await database.execute(
        SQL["register"],
        identity.worker_id,
        identity.name,
        identity.version,
        identity.queues,
        identity.handlers,
        identity.slots,
        identity.lease,
        identity.declares,
        identity.weights,
        msgspec.json.encode(identity.pools).decode(),
        identity.app,
        identity.host,
    )


async def heartbeat(database: Database, worker_id: UUID) -> datetime | None:
    """Renew the lease and return the database's time. None: the lease has expired."""
    row = await database.fetchrow(SQL["heartbeat"], worker_id)
    return row["read_at"] if row else None


async def name_unstarted(database: Database, worker_id: UUID, run_ids: Sequence[UUID]) -> None:
    """Record the due runs that a worker holds and has not started, so that they do not count as running."""
    await database.execute(SQL["name_unstarted"], worker_id, list(run_ids))


async def announce(database: Database, worker_id: UUID, suspects: Sequence[Run]) -> bool:
    """Announce suspects before they start. False: the lease has expired."""
    return bool(await database.fetch(SQL["announce"], worker_id, [name_of(run) for run in suspects]))


async def retract(database: Database, worker_id: UUID, suspects: Sequence[Run]) -> None:
    """Withdraw the announcement of suspects that have ended."""
    await database.execute(SQL["retract"], worker_id, [name_of(run) for run in suspects])


async def live(database: Database) -> list[WorkerRow]:
    """Read every worker that has a row."""
    return [
        WorkerRow(**{**row, "pools": msgspec.json.decode(row["pools"])}) for row in await database.fetch(SQL["live"])
    ]


async def offers(database: Database) -> list[Offer]:
    """Read the handlers of workers that are alive and claim runs."""
    rows = [row for row in await live(database) if row.until > row.read_at and not row.is_draining]
    return [Offer(row.name, row.app, row.queues, row.handlers) for row in rows]


async def drain(database: Database, worker_id: UUID, *, is_draining: bool) -> bool | None:
    """Set whether a worker drains. Returns whether that is new; None: it is not alive."""
    found: bool | None = await database.fetchval(SQL["drain"], worker_id, is_draining)
    return found


async def held_counts(database: Database, most: int) -> dict[UUID, int]:
    """Count the runs that each worker holds, up to a bound."""
    return {row[0]: row[1] for row in await database.fetch(SQL["held_counts"], most)}


async def held_runs(database: Database, worker_id: UUID, limit: int) -> list[dict[str, Any]]:
    """Read the runs that a worker holds."""
    return [dict(row) for row in await database.fetch(SQL["held_runs"], worker_id, limit)]


async def expire(database: Database, worker_id: UUID, heartbeat_seen: int, *, clock_stepped: bool = False) -> bool:
    """Expire a worker if its last heartbeat is still the one read; after a step of the clock, whatever `until` says."""
    return bool(await database.fetch(SQL["expire"], worker_id, heartbeat_seen, clock_stepped))


async def leave(
    database: Database, worker_id: UUID, held: Sequence[tuple[UUID, int]]
) -> tuple[bool, list[tuple[UUID, int]]]:
    """Deregister; runs that the worker holds and that are not in `held` go back unused.

    Returns whether it has deregistered, which it has not while something is held, and what went back.
    """
    run_ids, fences = [handle[0] for handle in held], [handle[1] for handle in held]
    row = await database.fetchrow(SQL["retire"], worker_id, run_ids, fences)
    return (False, []) if row is None else (row["has_left"], list(zip(row["run_ids"], row["fences"], strict=True)))


async def expired_workers(database: Database) -> list[ExpiredWorker]:
    """Read the lost workers that still hold runs."""
    return [ExpiredWorker(*row) for row in await database.fetch(SQL["expired_workers"])]


async def depart(database: Database, worker_id: UUID) -> None:
    """Record the loss of a worker of which only its leases are known."""
    await database.execute(SQL["depart"], worker_id)


async def installation(database: Database) -> str:
    """Return a name of this installation that no other has: that of the server and the database."""
    name: str = await database.fetchval(SQL["installation"])
    return name
