"""Moves that no caller asks for: maintenance and the workers make them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from duly.domain.runs.run import Run
from duly.store.boxes import ready, runs
from duly.store.boxes.leased import Handle
from duly.store.boxes.ready import Line
from duly.store.connection.database import Database
from duly.store.tables import concurrency_keys, dependencies, workers

FOLLOWERS_MAX = 100  # looked at in one transaction
EXPIRED_MAX = 1_000  # in each box, by one statement
RATES_MAX = 1_000
TURNS_SECONDS = 0.25  # how often turns are given, while runs wait
IDLE_SECONDS = 0.5  # and while none does: turns are given for a second ahead, by whoever brings the first run
ASIDE_MAX = 2_000
FIRST: Line = ("", 0, 0)


async def check_followers(database: Database) -> int:
    """Let runs go whose jobs before them had ended when they were submitted. Returns how many were looked at."""
    looked = total = await dependencies.check(database, FOLLOWERS_MAX)
    while looked == FOLLOWERS_MAX:
        total += (looked := await dependencies.check(database, FOLLOWERS_MAX))
    return total


async def expire(database: Database) -> int:
    """End all runs that wait and are worthless by now, however long no worker comes for them. Returns how many."""
    ended = 0
    while True:
        gone = await runs.expire(database, EXPIRED_MAX)
        ended += len(gone)
        if len(gone) < EXPIRED_MAX:
            return ended


async def pace(database: Database) -> int:
    """Give turns to runs that wait for their rate, so far ahead that they start on time and no further.

    Returns how many rates were looked at, the last time.
    """
    while True:
        paced = await concurrency_keys.pace(database, RATES_MAX)
        if paced.given < RATES_MAX:
            return paced.looked


class Crowd(msgspec.Struct, frozen=True):
    """When so many runs that no live worker knows stand in front of a line that they are set aside."""

    runs: int = 1_000  # A few hundred may be of a handler whose workers are about to come.
    runs_more: int = 100  # where some of the kind stand aside already
    looks: int = ASIDE_MAX  # among so many
    lines: int = 500  # in one step


async def set_aside(database: Database, crowd: Crowd, first: Line = FIRST) -> tuple[int, Line]:
    """Walk over some lines and take a batch out of one that no live worker knows, so that no claim walks over it.

    Its runs are still ready. Gives how many there were, and the line to go on with.
    """
    moved, following = await ready.set_aside(
        database, first, lines=crowd.lines, crowd=crowd.runs, crowd_more=crowd.runs_more, looks=crowd.looks
    )
    return moved, following or FIRST


async def bring_back(database: Database) -> int:
    """Put a batch in line again of what a live worker knows; one that claims brings back what it knows itself."""
    return await ready.bring_back(database, ASIDE_MAX)


async def retire(database: Database, worker_id: UUID, held: Sequence[Run]) -> bool:
    """Let a worker leave for good, unless some runs still `held` have no outcome yet: then its lease runs out by itself.

    What hangs on it without its knowledge goes back.
    """
    return (await leave(database, worker_id, [(run.run_id, run.fence) for run in held]))[0]


async def leave(database: Database, worker_id: UUID, held: Sequence[Handle]) -> tuple[bool, list[Handle]]:
    """Do so by runs and fences; say as well what went back."""
    return await workers.leave(database, worker_id, held)
