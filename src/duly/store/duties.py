"""What there may be to do for maintenance: one question, where each duty would ask its own."""

from __future__ import annotations

import msgspec

from duly.store.database import Database
from duly.store.statements import load

SQL = load("duties")


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
    row = await database.fetchrow(SQL["look"])
    assert row is not None
    return Work(*row)
