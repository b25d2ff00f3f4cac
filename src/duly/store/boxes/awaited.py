"""Runs in the hands of their receiver: leased under a holder that has no heartbeat, each with a deadline."""

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

RECEIVER = UUID(int=0)  # who holds them; never a worker


class TakenOn(msgspec.Struct, frozen=True):
    """A run that its receiver has taken on, since when it is at work, and how long the receiver may take."""

    run: Run
    started_at: datetime | None
    within: timedelta


class UnderWay(msgspec.Struct, frozen=True):
    """An attempt whose receiver may say what it came to. Without a deadline, its worker still waits for the receiver's answer."""

    run: Run
    worker_id: UUID
    started_at: datetime
    deadline_at: datetime | None


class Over(msgspec.Struct, frozen=True):
    """An attempt that has ended, and what its run became by it."""

    outcome: str
    became: str
    attempt: int


async def put(database: Database, worker_id: UUID, taken_on: Sequence[TakenOn]) -> set[Handle]:
    """Put runs from a worker's hands into their receivers'. Returns those that were there."""
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
    """Read those whose receiver has said nothing by its deadline, the oldest first."""
    return [_under_way(row) for row in await database.fetch(SQL["overdue"], limit)]


async def close(database: Database, handle: Handle) -> None:
    """Forget the deadline of an attempt that has ended."""
    await database.execute(SQL["close"], *handle)


async def forget(database: Database, limit: int) -> None:
    """Forget deadlines of attempts that have ended otherwise."""
    await database.execute(SQL["forget"], limit)


async def extend(database: Database, handle: Handle, span: timedelta) -> datetime | None:
    """Give a receiver so long from now on. None: it has no such run in its hands, or its deadline has passed."""
    row = await database.fetchrow(SQL["extend"], *handle, span)
    return row["deadline_at"] if row else None


async def ended(database: Database, handle: Handle) -> Over | None:
    """Read what an attempt came to, where that is on record."""
    return await database.fetch_row_as(Over, SQL["ended"], *handle)


def _under_way(row: Any) -> UnderWay:
    return UnderWay(run_of(row), row["worker_id"], row["started_at"], row["deadline_at"])
