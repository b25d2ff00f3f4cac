"""Awaited runs: leased by their receiver, which has no heartbeat, each with a deadline."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.runs.run import Run
from duly.store.boxes.leased import Handle
from duly.store.boxes.options import run_of
from duly.store.connection.database import Database
from duly.store.connection.statements import columns, load

SQL = load("boxes/awaited")

RECEIVER = UUID(int=0)  # the holder of awaited runs; never a worker


class TakenOn(msgspec.Struct, frozen=True):
    """A run that its receiver accepted, since when it is at work, and how long the receiver may take."""

    run: Run
    started_at: datetime | None
    within: timedelta


class UnderWay(msgspec.Struct, frozen=True):
    """An attempt whose receiver may report its outcome.

    Without a deadline, its worker still waits for the receiver's response.
    """

    run: Run
    worker_id: UUID
    started_at: datetime
    deadline_at: datetime | None


class Over(msgspec.Struct, frozen=True):
    """An ended attempt, and what its run became."""

    outcome: str
    became: str
    attempt: int


async def put(database: Database, worker_id: UUID, taken_on: Sequence[TakenOn]) -> set[Handle]:
    """Move leases from a worker to the runs' receivers. Returns the runs that were there."""
    rows = await database.fetch(
        SQL["put"],
        worker_id,
        *columns([item.run for item in taken_on], "run_id", "fence"),
        *columns(taken_on, "started_at", "within"),
    )
    return {(row[0], row[1]) for row in rows}


async def cancel(database: Database, run_ids: Sequence[UUID], reason: str) -> list[UUID]:
    """End runs that wait for their receiver. Returns those that did."""
    return [row[0] for row in await database.fetch(SQL["cancel_awaited"], run_ids, reason)]


async def find(database: Database, handle: Handle) -> UnderWay | None:
    """Read one attempt that is under way, by run and fence."""
    return await database.fetch_row_with(_under_way, SQL["find"], *handle)


async def overdue(database: Database, limit: int) -> list[UnderWay]:
    """Read the runs whose receiver missed its deadline, the oldest first."""
    return [_under_way(row) for row in await database.fetch(SQL["overdue"], limit)]


async def close(database: Database, handle: Handle) -> None:
    """Delete the deadline of an ended attempt."""
    await database.execute(SQL["close"], *handle)


async def forget(database: Database, limit: int) -> None:
    """Delete deadlines of attempts that ended otherwise."""
    await database.execute(SQL["forget"], limit)


async def extend(database: Database, handle: Handle, span: timedelta) -> datetime | None:
    """Extend a receiver's deadline from now. None: it holds no such run, or its deadline has passed."""
    row = await database.fetchrow(SQL["extend"], *handle, span)
    return row["deadline_at"] if row else None


async def ended(database: Database, handle: Handle) -> Over | None:
    """Read the outcome of an attempt, if it is recorded."""
    return await database.fetch_row_as(Over, SQL["ended"], *handle)


def _under_way(row: Any) -> UnderWay:
    return UnderWay(run_of(row), row["worker_id"], row["started_at"], row["deadline_at"])
