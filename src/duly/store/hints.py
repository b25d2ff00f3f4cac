"""Wake-ups: a hint to look, never data. They are sent after the commit, on a connection of our own, and may be lost."""

from __future__ import annotations

from collections.abc import Sequence

from duly.store.database import Database
from duly.store.statements import load

SQL = load("hints")


async def send(database: Database, queues: Sequence[str]) -> None:
    """Tell the workers of these queues that something is ready."""
    await database.fetch(SQL["send"], queues)


async def send_to_all(database: Database) -> None:
    """Tell every worker that something is ready."""
    await database.fetch(SQL["send_to_all"])


async def send_holds_changed(database: Database) -> None:
    """Tell every worker that something was held or lifted."""
    await database.fetch(SQL["send_holds_changed"])
