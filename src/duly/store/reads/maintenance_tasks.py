"""Pending maintenance: one query for all tasks, where each would need its own; and when each was last done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("reads/maintenance_tasks")


class Work(msgspec.Struct, frozen=True):
    """For each kind of work whether there may be any; False is certain as of the look."""

    signals: bool
    blocked: bool
    awaited: bool
    callbacks: bool
    tasks: bool
    dependency_checks: bool
    tallies: bool
    unroutable: bool


async def look(database: Database) -> Work:
    """Read which maintenance tasks may have work."""
    return Work(*await database.fetch_one(SQL["look"]))


async def record(database: Database, ages: Mapping[str, float]) -> None:
    """Record how many seconds ago tasks were done, for other processes."""
    await database.execute(SQL["record"], list(ages), list(ages.values()))


async def ages(database: Database, names: Sequence[str]) -> dict[str, float]:
    """Return how many seconds ago any process did each task, without those never done."""
    return {row["name"]: row["age"] for row in await database.fetch(SQL["ages"], list(names))}
