"""Replay: give dead runs another set of attempts. They keep their id, and attempt numbers go on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from duly.domain.tenancy.audit import Action
from duly.moves.admin.audit import audited, note_runs
from duly.store.boxes import runs
from duly.store.connection.database import Database


@audited
async def replay(database: Database, run_ids: Sequence[UUID], rate: float | None = None, first: int = 0) -> list[UUID]:
    """Move dead runs back, at once or so many a second, when `first` went before them. Returns those that were dead."""
    delays = [timedelta(seconds=(first + number) / rate if rate else 0) for number in range(len(run_ids))]
    replayed = await runs.replay(database, run_ids, delays)
    await note_runs(database, Action.DEAD_REPLAYED, replayed)
    return replayed


@audited
async def discard(database: Database, run_ids: Sequence[UUID]) -> list[UUID]:
    """Give dead runs up for good, with a record. Returns those that were dead."""
    discarded = await runs.discard(database, run_ids)
    await note_runs(database, Action.DEAD_DISCARDED, discarded)
    return discarded
