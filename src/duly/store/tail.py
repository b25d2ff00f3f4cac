"""Counting what ended, as it ends: each row of history exactly once, at a cost that follows the new rows only.

History is append-only, so what is new stands at the end of the day's partitions: a look reads each from the block where it
ended some seconds ago. Rows become visible in another order than they were written; so of these a look counts the ones
that the snapshot of the look before could not see, by their transaction. Nothing is counted twice, and nothing is missed
but the rows of a transaction that stayed open longer than the overlap while others wrote whole blocks behind it. A row
that is written anew counts anew; that happens only to what fell into a default partition before its day's was made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import date, timedelta

import asyncpg
import msgspec

from duly.store.database import Database
from duly.store.statements import load

OVERLAP_SECONDS = 10.0
SKEW_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
DURATION_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)

SQL = load("tail")


class Ended(msgspec.Struct, frozen=True):
    """So many attempts of one kind. A bucket is None where there was no start."""

    queue: str
    outcome: str
    became: str
    skew_bucket: int | None
    duration_bucket: int | None
    runs: int
    skew: float | None
    duration: float | None


class Snapshot(msgspec.Struct, frozen=True):
    """Which transactions had ended at a moment."""

    oldest_open: int
    end: int
    open: tuple[int, ...]

    @staticmethod
    def parse(text: str) -> Snapshot:
        """Read PostgreSQL's own notation, `xmin:xmax:xip,xip`."""
        oldest_open, end, still_open = text.split(":")
        return Snapshot(int(oldest_open), int(end), tuple(int(number) for number in still_open.split(",") if number))

    def arguments(self) -> tuple[int, int, list[int]]:
        """Give the end modulo 2^32 as rows carry it, and everything else as a distance from it."""
        return self.end % 2**32, self.oldest_open - self.end, [number - self.end for number in self.open]


class Growth:
    """Knows where history ended some seconds ago, and which of its rows a look before could not see."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._snapshot: Snapshot | None = None
        self._sizes: deque[tuple[float, dict[str, int]]] = deque()

    async def sizes(self) -> list[tuple[str, int]]:
        """Give the partitions that may still grow, and how many blocks each has."""
        rows = await self._database.fetch(SQL["leaves"])
        return [(row["name"], row["blocks"]) for row in rows if _may_grow(row["name"], row["read_at"].date())]

    async def _take_place(self) -> None:
        self._snapshot = Snapshot.parse(await self._database.fetchval(SQL["snapshot"]))

    async def _leaves(self) -> list[str]:
        """Name the partitions that may still grow, and note how large each is."""
        sizes = dict(await self.sizes())
        now = self._database.clock.monotonic()
        self._sizes.append((now, sizes))
        # Keep one note older than the overlap, to begin from.
        while len(self._sizes) > 1 and now - self._sizes[1][0] >= OVERLAP_SECONDS:
            self._sizes.popleft()
        return sorted(sizes)

    def _floors(self, leaves: Sequence[str]) -> list[tuple[int, int]]:
        """Say where to begin: in the block that was the last one when the overlap began, which may have filled up since.

        A partition may also have shrunk since: a vacuum gives back what was deleted at its end.
        """
        return [(max(0, min(sizes.get(leaf, 0) for _, sizes in self._sizes) - 1), 0) for leaf in leaves]


class Tail(Growth):
    """Counts what ended, from where the last look ended."""

    async def look(self) -> list[Ended]:
        """Count what ended since the last look; the first one only takes its place."""
        leaves = await self._leaves()
        if self._snapshot is None:
            await self._take_place()
            return []
        if not leaves:
            return []
        arguments = (*self._snapshot.arguments(), SKEW_BOUNDS, DURATION_BOUNDS, *self._floors(leaves))
        try:
            rows = await self._database.fetch(_statement(leaves), *arguments)
        except asyncpg.UndefinedTableError:
            return []  # A partition was dropped between the two statements: the next look sees it.
        self._snapshot = Snapshot.parse(rows[0]["snapshot"])
        return [Ended(*row[1:]) for row in rows if row["runs"] is not None]


def _may_grow(leaf: str, today: date) -> bool:
    """Say whether rows may still come: to the default, and to the days around today."""
    suffix = leaf.rpartition("_")[2].strip('"')
    return not suffix.isdigit() or suffix >= f"{today - timedelta(days=1):%Y%m%d}"


def _statement(leaves: Sequence[str]) -> str:
    unseen = " union all ".join(SQL["unseen"].format(leaf=leaf, number=number) for number, leaf in enumerate(leaves, 6))
    return SQL["look"].format(unseen=unseen)
