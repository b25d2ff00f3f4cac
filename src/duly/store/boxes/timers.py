"""Timers: runs and next fires that are due at a moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from duly.domain.triggers.schedule.planning import FirePlan
from duly.store.connection.database import Database
from duly.store.connection.statements import columns, json_of, load

SQL = load("boxes/timers")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Position = tuple[datetime, UUID]  # when a timer is due, and its run or, of a next fire, its job
FIRST: Position = (datetime.min.replace(tzinfo=UTC), UUID(int=0))


class Staged(msgspec.Struct, frozen=True):
    """The result of staging: timers moved, when the next one is due, and the database time."""

    count: int
    next_due_at: datetime | None
    read_at: datetime


class DueFire(msgspec.Struct, frozen=True):
    """An occurrence that is about to be due, of all jobs of a cohort; late when it is noticed too late, seen from `read_at`."""

    cohort: int
    scheduled_at: datetime
    is_late: bool
    read_at: datetime

    @property
    def key(self) -> int:
        """The number that `duly.fire_key` gives."""
        return self.cohort + 2 * ((self.scheduled_at - _EPOCH) // _MICROSECOND) + self.is_late


class DueRun(msgspec.Struct, frozen=True):
    """A run that is about to be staged, as its trace shows it."""

    run_id: UUID
    job_id: UUID
    queue: str
    handler: str
    tenant: int
    traceparent: str | None
    is_one_shot: bool | None


class Answer(msgspec.Struct, frozen=True):
    """The plan for a fire, and the rate of the backfill lane for one job, in runs a second."""

    fire: DueFire
    plan: FirePlan
    rate: float


async def due_runs(database: Database, shards: Sequence[int], horizon: timedelta, per_shard: int) -> dict[UUID, DueRun]:
    """Read the first runs that are due within the horizon, by their ids."""
    rows = await database.fetch(SQL["due_runs"], list(shards), horizon, per_shard)
    return {row["run_id"]: DueRun(*row) for row in rows}


async def due_fires(database: Database, shards: Sequence[int], horizon: timedelta, per_shard: int) -> list[DueFire]:
    """Read the occurrences of cohorts that are due within the horizon, each once."""
    return [DueFire(*row) for row in await database.fetch(SQL["due_fires"], list(shards), horizon, per_shard)]


async def due_accounts(
    database: Database, shards: Sequence[int], horizon: timedelta, per_shard: int, firsts: Mapping[DueFire, datetime]
) -> dict[tuple[int, datetime], list[datetime]]:
    """Read from where on jobs account for what calendars block, if that is after the first one blocked before a fire."""
    keys = [fire.cohort for fire in firsts], [fire.scheduled_at for fire in firsts]
    found: dict[tuple[int, datetime], list[datetime]] = {}
    for cohort, scheduled_at, since in await database.fetch(
        SQL["due_accounts"], list(shards), horizon, per_shard, *keys, list(firsts.values())
    ):
        found.setdefault((cohort, scheduled_at), []).append(since)
    return found


async def due(
    database: Database, shard: int, horizon: timedelta, limit: int, after: Position = FIRST
) -> list[Position]:
    """Read what is due within the horizon in a shard after a position, in order, whether it would be staged or not."""
    return [(row[0], row[1]) for row in await database.fetch(SQL["due"], shard, horizon, *after, limit)]


async def stage(
    database: Database,
    holder: UUID,
    epochs: Mapping[int, int],
    horizon: timedelta,
    per_shard: int,
    answers: Sequence[Answer] = (),
    left_out: Sequence[UUID] = (),
    only: Sequence[UUID] | None = None,
) -> Staged:
    """Stage what is due within the horizon, over all held shards, except what is left out, by run or by job.

    Where `only` names some, nothing else is moved.
    """
    # The statement tells apart two cohorts with one key; the second waits for the next look.
    by_key = {answer.fire.key: answer for answer in answers}
    ordered = [by_key[key] for key in sorted(by_key)]
    read_at = max((answer.fire.read_at for answer in ordered), default=None)
    row = await database.fetch_one(
        SQL["stage"],
        holder,
        list(epochs),
        list(epochs.values()),
        horizon,
        per_shard,
        read_at,
        *columns([answer.fire for answer in ordered], "key", "cohort"),
        *columns([answer.plan for answer in ordered], "run_at", "missed", "next_at", "next_window"),
        [json_of(answer.plan.skips) for answer in ordered],
        [_catch_up(answer) for answer in ordered],
        left_out,
        only,
    )
    return Staged(*row)


def _catch_up(answer: Answer) -> str | None:
    stretch = answer.plan.catch_up
    if stretch is None:
        return None
    start, end = stretch
    return msgspec.json.encode(
        {
            "from_at": start,
            "to_at": end,
            "last_at": end - _MICROSECOND,
            "rate": answer.rate,
            "total": answer.plan.catch_up_count,
        }
    ).decode()
