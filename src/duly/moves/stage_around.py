"""Stage around what the store refuses: one bad row must not hold up everything that falls due beside it.

Staging is one statement over all shards held, so a timer that cannot be moved, whatever the reason, fails all of it. Then it is
found by halves, first of the shards and then of what is due in one of them; what is good in each half is staged on the way. It
stays where it is, is left out of what follows, and is tried again, less and less often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from duly.log import Log
from duly.store import timers
from duly.store.database import Database
from duly.store.refusals import BAD_ROW
from duly.store.timers import Answer, Staged

AGAIN_SECONDS = 10.0
AGAIN_SECONDS_MAX = 600.0


class LeftOut:
    """Timers that the store refused to stage, by run or, of a next fire, by job. One for each scheduler."""

    def __init__(self, log: Log | None = None) -> None:
        self._log = log or Log("scheduler")
        self._pauses: dict[UUID, float] = {}
        self._again_at: dict[UUID, float] = {}

    def __len__(self) -> int:
        return len(self._again_at)

    def ids(self, monotonic: float) -> list[UUID]:
        """Name those whose time to be tried again has not come."""
        self._forget(monotonic)
        return [id_ for id_, again_at in self._again_at.items() if again_at > monotonic]

    def add(self, id_: UUID, error: Exception, monotonic: float) -> None:
        """Leave one out, for longer each time."""
        pause = min(AGAIN_SECONDS_MAX, 2 * self._pauses.get(id_, AGAIN_SECONDS / 2))
        self._pauses[id_], self._again_at[id_] = pause, monotonic + pause
        self._log.error("stage_refused", timer=id_, error=repr(error), again_seconds=pause)

    def _forget(self, monotonic: float) -> None:
        """Forget those that were tried again and not refused: nothing was heard of them for long after their time had come."""
        for id_ in [id_ for id_, again_at in self._again_at.items() if again_at + AGAIN_SECONDS_MAX <= monotonic]:
            del self._again_at[id_], self._pauses[id_]


class Batch(msgspec.Struct, frozen=True):
    """What one staging is asked for."""

    database: Database
    holder: UUID
    horizon: timedelta
    per_shard: int
    answers: Sequence[Answer]
    left_out: LeftOut

    async def stage(self, epochs: Mapping[int, int], more: Sequence[UUID] = ()) -> Staged:
        """Stage some shards without what is left out, and without some more."""
        left_out = [*self.left_out.ids(self.database.clock.monotonic()), *more]
        return await timers.stage(
            self.database, self.holder, epochs, self.horizon, self.per_shard, self.answers, left_out
        )


async def stage_around(batch: Batch, epochs: Mapping[int, int]) -> Staged:
    """Stage what can be of these shards. All of it, unless the store refuses something."""
    try:
        return await batch.stage(epochs)
    except BAD_ROW as error:
        if len(epochs) == 1:
            return await _without_the_bad(batch, epochs, error)
    items, middle = list(epochs.items()), len(epochs) // 2
    one, other = [await stage_around(batch, dict(half)) for half in (items[:middle], items[middle:])]
    return Staged(one.count + other.count, _earlier(one.next_due_at, other.next_due_at), other.read_at)


async def _without_the_bad(batch: Batch, shard: Mapping[int, int], error: Exception) -> Staged:
    """Find one that is refused among what is due in a shard, and leave it out. Further ones are found at the next looks."""
    database, count = batch.database, 0
    known = set(batch.left_out.ids(database.clock.monotonic()))
    due = await timers.due_ids(database, list(shard), batch.horizon, batch.per_shard + len(known))
    suspects = [id_ for id_ in due if id_ not in known]
    while len(suspects) > 1:
        tried = suspects[: len(suspects) // 2]
        try:
            count += (await batch.stage(shard, [id_ for id_ in due if id_ not in tried])).count
            suspects = suspects[len(tried) :]
        except BAD_ROW as again:
            error, suspects = again, tried
    if suspects:
        batch.left_out.add(suspects[0], error, database.clock.monotonic())
    try:
        staged = await batch.stage(shard)
    except BAD_ROW:  # There is another.
        staged = await msgspec.structs.replace(batch, per_shard=0).stage(shard)
    return msgspec.structs.replace(staged, count=count + staged.count)


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((moment for moment in (one, other) if moment is not None), default=None)
