"""The tail of history: reads each end once, in the order of transactions, at a cost that depends only on what is new.

Rows lie in the table in any order and commit in any order, so a reader goes by the transaction that recorded each row.
Its position is an end and a set of transactions before it that were still open: it has seen the rows of all others
before the end. The next look reads the rows from the end on, and those of the open ones that have committed since. No
look waits for an open transaction, however long it stays open. After a failover, or a restore into another cluster,
transaction ids mean nothing to an earlier position: the reader starts over, and says so.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import msgspec

from duly.domain.diagnosis.figures import ATTEMPT_BOUNDS, DELAY_BOUNDS, DURATION_BOUNDS
from duly.store.connection.database import Database
from duly.store.connection.statements import load

OVERLAP_SECONDS = 10.0
# Counters that have fallen behind read so many transactions at a time, so that each look ends in time.
TRANSACTIONS_MAX = 2_000

SQL = load("reads/tail")


class Ended(msgspec.Struct, frozen=True):
    """A number of attempts of one tenant and kind. A bucket is None where there was no start, or the run goes on."""

    tenant: int
    queue: str
    outcome: str
    became: str
    delay_bucket: int | None
    duration_bucket: int | None
    attempts_bucket: int | None
    runs: int
    delay: float | None
    duration: float | None
    attempts: int | None


class Snapshot(msgspec.Struct, frozen=True):
    """The transactions that had ended at a moment."""

    oldest_open: int
    end: int
    open: tuple[int, ...]

    @staticmethod
    def parse(text: str) -> Snapshot:
        """Read PostgreSQL's own notation, `xmin:xmax:xip,xip`."""
        oldest_open, end, still_open = text.split(":")
        return Snapshot(int(oldest_open), int(end), tuple(int(number) for number in still_open.split(",") if number))

    def arguments(self) -> tuple[int, int, list[int]]:
        """Return the end modulo 2^32 as rows carry it, and everything else as a distance from it."""
        return self.end % 2**32, self.oldest_open - self.end, [number - self.end for number in self.open]


class Position(msgspec.Struct, frozen=True):
    """A position in history: every transaction before `end` except those that were `open`, on the server that `cluster`
    names.
    """

    cluster: str
    end: int
    open: tuple[int, ...] = ()

    @staticmethod
    def at(cluster: str, snapshot: str) -> Position:
        """Return the position after everything that a snapshot sees."""
        seen = Snapshot.parse(snapshot)
        return Position(cluster, seen.end, seen.open)

    def is_before(self, now: Position) -> bool:
        """Return whether `now` can follow this position: on the same server, and not earlier."""
        return self.cluster == now.cluster and self.end <= now.end

    def cut(self, end: int) -> Position:
        """Return this position, cut at an earlier end."""
        end = min(self.end, end)
        return Position(self.cluster, end, tuple(number for number in self.open if number < end))

    def shortened(self, open_max: int) -> Position:
        """Return a position with fewer open transactions, which has seen the same or less."""
        return self if len(self.open) <= open_max else self.cut(sorted(self.open)[open_max])

    def arguments(self) -> tuple[str, list[str]]:
        """Return the position as the statements take it."""
        return str(self.end), [str(number) for number in self.open]


class Dependent:
    """Tracks which rows of history were read. `was_cut_off`: the last look could not go on, and started over from now."""

    def __init__(self, database: Database, position: Position | None = None) -> None:
        self._database = database
        self._position = position
        self.was_cut_off = False

    @property
    def position(self) -> Position | None:
        """The current position; None before the first look."""
        return self._position

    async def _take_position(self) -> None:
        _, self._position = await positions(self._database)

    def _has_moved_on(self, first: Any, newest: int) -> bool:
        """Advance past what was read; False, where transaction ids have started over and there is no position."""
        assert self._position is not None
        now = Position.at(first["cluster"], first["snapshot"])
        self.was_cut_off = not self._position.is_before(now)
        # After the newest row, and not where the snapshot ends: after a crash of the server, ids that never reached the
        # disk are given out again. A row that was seen had reached it.
        self._position = None if self.was_cut_off else now.cut(max(self._position.end, newest + 1))
        return not self.was_cut_off


class Tail(Dependent):
    """Counts what ended, from where the last look ended."""

    is_behind = False  # whether the last look stopped early

    async def look(self) -> list[Ended]:
        """Count what ended since the last look, or a part of it while `is_behind`; the first look only sets the position."""
        if self._position is None:
            await self._take_position()
            return []
        end, still_open = self._position.arguments()
        stop = self._position.end + TRANSACTIONS_MAX
        bounds = (DELAY_BOUNDS, DURATION_BOUNDS, [most + 0.5 for most in ATTEMPT_BOUNDS])
        rows = await self._database.fetch(SQL["look"], end, str(stop), still_open, *bounds)
        if not self._has_moved_on(rows[0], max(row["newest"] or 0 for row in rows)):
            await self._take_position()
            return []
        found = [Ended(*row[3:]) for row in rows if row["runs"] is not None]
        now = Position.at(rows[0]["cluster"], rows[0]["snapshot"])
        self.is_behind = stop < now.end
        if self.is_behind and not found and await self._has_passed_over(stop, now):
            return await self.look()
        return found

    async def _has_passed_over(self, stop: int, now: Position) -> bool:
        """Skip to the first row from `stop` on, before which `now` sees nothing new. False: there is none yet."""
        first = await self._database.fetchval(SQL["first_end"], str(stop))
        self.is_behind = first is not None
        if first is not None:
            self._position = now.cut(first)
        return self.is_behind


async def positions(database: Database) -> tuple[Position, Position]:
    """Return the position of this moment, and one that has seen as much and survives a crash of the server.

    Ids that never reached the disk are given out again after a crash, so the second ends after the newest row.
    """
    row = await database.fetch_one(SQL["position"])
    now = Position.at(row["cluster"], row["snapshot"])
    return now, now.cut(row["newest"] + 1)


async def growing(database: Database) -> list[tuple[str, int]]:
    """Return the partitions of history that may still grow, and the blocks of each."""
    rows = await database.fetch(SQL["leaves"])
    return [(row["name"], row["blocks"]) for row in rows if _may_grow(row["name"], row["read_at"].date())]


def _may_grow(leaf: str, today: date) -> bool:
    """Return whether rows may still come: to the default partition, and to the days around today."""
    suffix = leaf.rpartition("_")[2].strip('"')
    return not suffix.isdigit() or suffix >= f"{today - timedelta(days=1):%Y%m%d}"
