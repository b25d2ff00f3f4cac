"""What there may be to do for maintenance: one question, where each duty would ask its own; and when each was done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from duly.store.connection.database import Database
from duly.store.connection.statements import load

SQL = load("reads/maintenance_tasks")


class Work(msgspec.Struct, frozen=True):
    """For each kind of work whether there may be any; where it says no, there was none when it looked."""

    signals: bool
    blocked: bool
    awaited: bool
    tellings: bool
    errands: bool
    follow_checks: bool
    tallies: bool
    aside: bool


async def look(database: Database) -> Work:
    """See what there may be to do."""
    return Work(*await database.fetch_one(SQL["look"]))


async def note(database: Database, ages: Mapping[str, float]) -> None:
    """Note how many seconds ago duties were done, for those who cannot see into this process."""
    await database.execute(SQL["note"], list(ages), list(ages.values()))


async def ages(database: Database, names: Sequence[str]) -> dict[str, float]:
    """Return how many seconds ago anybody did each duty; one that nobody has ever done is left out."""
    return {row["name"]: row["age"] for row in await database.fetch(SQL["ages"], list(names))}
