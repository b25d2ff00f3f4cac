"""Unroutable runs: no live worker has their handler.

Many of them at the head of a queue leave the claim index until such a worker comes.

They are still ready; claims do not read past them.
"""

from __future__ import annotations

import msgspec

from duly.store.boxes import ready
from duly.store.boxes.ready import Subqueue
from duly.store.connection.database import Database

UNROUTABLE_MAX = 2_000  # moved by one statement
FIRST: Subqueue = ("", 0, 0)


class UnroutableLimits(msgspec.Struct, frozen=True):
    """The number of unroutable runs at the head of a queue from which on they are marked."""

    runs: int = 1_000  # a few hundred may have a handler whose workers are about to come
    runs_more: int = 100  # if some of the handler are marked already
    looks: int = UNROUTABLE_MAX  # among so many
    subqueues: int = 500  # in one step


async def mark_unroutable(
    database: Database, limits: UnroutableLimits, first: Subqueue = FIRST
) -> tuple[int, Subqueue]:
    """Take a batch of unroutable runs out of the way of claims. Returns how many there were, and where to go on."""
    moved, following = await ready.mark_unroutable(
        database,
        first,
        subqueues=limits.subqueues,
        backlog=limits.runs,
        backlog_more=limits.runs_more,
        looks=limits.looks,
    )
    return moved, following or FIRST


async def restore_routable(database: Database) -> int:
    """Return a batch of runs to their queues whose handler a live worker has; a claim does so for its own handlers."""
    return await ready.restore_routable(database, UNROUTABLE_MAX)
