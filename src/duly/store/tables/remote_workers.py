"""HTTP workers: each belongs to a tenant. Their registrations are their own; their leases are leases like any others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
import msgspec

from duly.domain.runs.run import Run
from duly.store.boxes.leased import Handle
from duly.store.boxes.options import run_of
from duly.store.connection.database import Database
from duly.store.connection.statements import load
from duly.store.tables.workers import Identity

SQL = load("tables/remote_workers")
WORKERS_MAX = 1_000  # of a tenant, at once
LINES_MAX = 10_000  # of an attempt


class Lent(msgspec.Struct, frozen=True):
    """A run leased to an HTTP worker, and since when."""

    run: Run
    claimed_at: datetime


class Renewal(msgspec.Struct, frozen=True):
    """A renewed lease: for how long, which runs are to be stopped, and which are no longer the worker's."""

    lease: timedelta
    cancel: list[Handle]
    lost: list[Handle]


async def register(database: Database, identity: Identity) -> None:
    """Register a worker of this session's tenant. Raises QuotaReached."""
    await database.execute(
        SQL["register"],
        identity.worker_id,
        identity.name,
        identity.version,
        identity.queues,
        identity.handlers,
        identity.slots,
        identity.lease,
        WORKERS_MAX,
    )


async def foresee(database: Database, worker_id: UUID, tenant: int) -> float | None:
    """Return in how many seconds a claim may find something: 0 now; None when nothing is in sight."""
    seconds: float | None = await database.fetchval(SQL["foresee"], worker_id, tenant)
    return seconds


async def claim(database: Database, worker_id: UUID, number: int, limit: int) -> list[Lent]:
    """Lease due runs to the worker. Raises NotFound, WorkerExpired, ClaimOver."""
    return _lent(await database.fetch(SQL["claim"], worker_id, number, limit))


async def renew(database: Database, worker_id: UUID, held: Sequence[Handle], answered: int) -> Renewal:
    """Renew a lease, and hand back runs that the worker holds without knowing it. Raises NotFound."""
    row = await database.fetch_one(SQL["renew"], worker_id, *_columns(held), answered)
    return Renewal(
        row["lease"],
        list(zip(row["cancel_runs"], row["cancel_fences"], strict=True)),
        list(zip(row["lost_runs"], row["lost_fences"], strict=True)),
    )


async def held(database: Database, worker_id: UUID, named: Sequence[Handle]) -> dict[Handle, Lent]:
    """Read those of the named runs that are leased to the worker."""
    lent = _lent(await database.fetch(SQL["held"], worker_id, *_columns(named)))
    return {(item.run.run_id, item.run.fence): item for item in lent}


async def refuse(database: Database, worker_id: UUID, refused: Sequence[tuple[Handle, str]]) -> None:
    """Record outcomes that came after the lease was lost. They change nothing."""
    run_ids, fences = _columns([handle for handle, _ in refused])
    await database.execute(SQL["refuse"], worker_id, run_ids, fences, [outcome for _, outcome in refused])


async def append_logs(
    database: Database, worker_id: UUID, handle: Handle, lines: Sequence[tuple[str, str, str | None]]
) -> int | None:
    """Append log lines: level, message, fields as JSON text. Returns how many were stored; None: the lease is lost."""
    levels, messages, fields = ([line[column] for line in lines] for column in range(3))
    kept: int | None = await database.fetchval(
        SQL["append_logs"], *handle, worker_id, levels, messages, fields, LINES_MAX
    )
    return kept


def _lent(rows: Sequence[asyncpg.Record]) -> list[Lent]:
    return [Lent(run_of(row), row[-1]) for row in rows]


def _columns(handles: Sequence[Handle]) -> tuple[list[UUID], list[int]]:
    return [handle[0] for handle in handles], [handle[1] for handle in handles]
