"""Staging around rows that the store refuses: one bad row must not delay everything that is due beside it.

Staging is one statement over all held shards, so a timer that cannot be moved, for whatever reason, fails all of it. It
is then found by halves, first of the shards and then of what is due in one of them; the good rows of each half are
staged on the way. Each half is named, and nothing beside it is tried: so any number of rows that staging leaves alone
may come before the bad one, and only a row that was refused alone is blamed. The bad row stays where it is, is left
out, and is tried again, less and less often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.log import Log
from duly.store.boxes import timers
from duly.store.boxes.timers import Answer, Staged
from duly.store.connection.database import Database
from duly.store.connection.refusals import BAD_ROW

RETRY_SECONDS = 10.0
RETRY_SECONDS_MAX = 600.0
SUSPECTS_MAX = 1_000  # of one shard, tried together


class LeftOut:
    """Timers that the store refused to stage, by run or, for a next fire, by job. One for each scheduler."""

    def __init__(self, log: Log | None = None) -> None:
        self._log = log or Log("scheduler")
        self._pauses: dict[UUID, float] = {}
        self._retry_at: dict[UUID, float] = {}

    def __len__(self) -> int:
        return len(self._retry_at)

    def ids(self, monotonic: float) -> list[UUID]:
        """Return those that are not to be tried again yet."""
        self._forget(monotonic)
        return [id_ for id_, retry_at in self._retry_at.items() if retry_at > monotonic]

    def add(self, id_: UUID, error: Exception, monotonic: float) -> None:
        """Leave one out, for longer each time."""
        pause = min(RETRY_SECONDS_MAX, 2 * self._pauses.get(id_, RETRY_SECONDS / 2))
        self._pauses[id_], self._retry_at[id_] = pause, monotonic + pause
        self._log.error("stage_refused", timer=id_, error=repr(error), again_seconds=pause)

    def _forget(self, monotonic: float) -> None:
        """Forget those that were tried again and not refused: they were not reported for long after their time had come."""
        for id_ in [id_ for id_, retry_at in self._retry_at.items() if retry_at + RETRY_SECONDS_MAX <= monotonic]:
            del self._retry_at[id_], self._pauses[id_]


class Batch(msgspec.Struct, frozen=True):
    """The arguments of one staging."""

    database: Database
    holder: UUID
    horizon: timedelta
    per_shard: int
    answers: Sequence[Answer]
    left_out: LeftOut

    async def stage(self, epochs: Mapping[int, int]) -> Staged:
        """Stage some shards without what is left out."""
        return await timers.stage(
            self.database, self.holder, epochs, self.horizon, self.per_shard, self.answers, self._left_out()
        )

    async def stage_only(self, shard: Mapping[int, int], ids: Sequence[UUID]) -> Staged:
        """Stage the named timers of one shard, without what is left out."""
        return await timers.stage(
            self.database, self.holder, shard, self.horizon, len(ids), self.answers, self._left_out(), ids
        )

    def _left_out(self) -> list[UUID]:
        return self.left_out.ids(self.database.clock.monotonic())


async def stage_around(batch: Batch, epochs: Mapping[int, int]) -> Staged:
    """Stage these shards: everything, except what the store refuses."""
    try:
        return await batch.stage(epochs)
    except BAD_ROW:
        if len(epochs) == 1:
            return await _without_the_bad(batch, epochs)
    items, middle = list(epochs.items()), len(epochs) // 2
    one, other = [await stage_around(batch, dict(half)) for half in (items[:middle], items[middle:])]
    return Staged(one.count + other.count, _earlier(one.next_due_at, other.next_due_at), other.read_at)


async def _without_the_bad(batch: Batch, shard: Mapping[int, int]) -> Staged:
    """Find one refused timer among those due in a shard, and leave it out. The next looks find further ones."""
    [number] = shard
    count, position, refused = 0, timers.FIRST, False
    while not refused and (due := await timers.due(batch.database, number, batch.horizon, SUSPECTS_MAX, position)):
        moved, refused = await _moved_until_refused(batch, shard, [id_ for _, id_ in due])
        count, position = count + moved, due[-1]
    try:
        staged = await batch.stage(shard)
    except BAD_ROW:  # there is another
        staged = await msgspec.structs.replace(batch, per_shard=0).stage(shard)
    return msgspec.structs.replace(staged, count=count + staged.count)


async def _moved_until_refused(batch: Batch, shard: Mapping[int, int], ids: Sequence[UUID]) -> tuple[int, bool]:
    """Stage some timers by halves up to the first that is refused, which is left out.

    Returns how many, and whether there was one.
    """
    try:
        return (await batch.stage_only(shard, ids)).count, False
    except BAD_ROW as error:
        if len(ids) == 1:
            batch.left_out.add(ids[0], error, batch.database.clock.monotonic())
            return 0, True
    middle = len(ids) // 2
    count, refused = await _moved_until_refused(batch, shard, ids[:middle])
    if refused:
        return count, True
    more, refused = await _moved_until_refused(batch, shard, ids[middle:])
    return count + more, refused


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)
