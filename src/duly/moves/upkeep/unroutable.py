"""Aside: what no live worker of its queue knows leaves its line, so that no claim walks over it; and comes back when one does.

It is still ready. A worker that claims brings back what it knows itself; here it is done for all, in bulk.
"""

from __future__ import annotations

import msgspec

from duly.store.boxes import ready
from duly.store.boxes.ready import Line
from duly.store.connection.database import Database

BATCH_MAX = 2_000
FIRST: Line = ("", 0, 0)


class Crowd(msgspec.Struct, frozen=True):
    """When so many of them stand in front of a line that they are set aside."""

    runs: int = 1_000  # A few hundred may be of a handler whose workers are about to come.
    runs_more: int = 100  # where some of the kind stand aside already
    looks: int = BATCH_MAX  # among so many
    lines: int = 500  # in one step


async def set_aside(database: Database, crowd: Crowd, first: Line = FIRST) -> tuple[int, Line]:
    """Walk over some lines and set aside a batch of one at most. Gives how many, and the line to go on with."""
    moved, following = await ready.set_aside(
        database, first, lines=crowd.lines, crowd=crowd.runs, crowd_more=crowd.runs_more, looks=crowd.looks
    )
    return moved, following or FIRST


async def bring_back(database: Database) -> int:
    """Put a batch in line again of what a live worker knows. Returns how many there were."""
    return await ready.bring_back(database, BATCH_MAX)
