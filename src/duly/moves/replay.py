"""Replay: give dead runs another set of attempts. They keep their id, and attempt numbers go on."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from duly.store import runs
from duly.store.database import Database


async def replay(database: Database, run_ids: Sequence[UUID]) -> list[UUID]:
    """Move dead runs back to ready. Returns those that were dead."""
    return await runs.replay(database, run_ids)


async def discard(database: Database, run_ids: Sequence[UUID]) -> list[UUID]:
    """Give dead runs up for good, with a record. Returns those that were dead."""
    return await runs.discard(database, run_ids)
