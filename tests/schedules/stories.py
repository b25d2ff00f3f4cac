"""Helpers of tests of schedules: schedules of each kind, and the outcomes of their occurrences."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.runs.outcome import Failed, Outcome
from duly.domain.runs.run import Run
from duly.log import Log
from duly.maintenance.reaper import Reaper
from duly.moves.schedules.backfill import Allowance, go_on
from duly.moves.stage import stage
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.tables.jobs import Submitted
from tests.builders import RNG, a_worker, an_active_schedule, claimed, hold, seconds, settled, staged
from tests.clock import START

MINUTE = timedelta(minutes=1)
ALL_SHARDS = range(64)
FOR_GOOD = Failed("broken", retryable=False)


def fails(after: float) -> Failed:
    """Give a failure that is tried again after so many seconds."""
    return Failed("broken", retry_after=seconds(after))


LATER = fails(600)


class Skipped(msgspec.Struct, frozen=True):
    """A stretch of occurrences that did not run, as it was recorded."""

    reason: str
    first: datetime
    last: datetime
    count: int


def skipped(reason: str, first: float, last: float | None = None, count: int = 1) -> Skipped:
    """Give a stretch that was skipped, in minutes after the start."""
    begin, end = minutes(first, first if last is None else last)
    return Skipped(f"skipped_{reason}", begin, end, count)


def minutes(*numbers: float) -> list[datetime]:
    """Give moments, in minutes after the start."""
    return [START + timedelta(minutes=number) for number in numbers]


async def a_cron(database: Database, expr: str = "* * * * *", *, tz: str = "UTC", **more: Any) -> Submitted:
    """Submit a job that fires by cron, each minute and beside itself unless told otherwise."""
    return await an_active_schedule(database, trigger={"type": "cron", "expr": expr, "tz": tz}, **more)


async def a_delay(database: Database, every: int = 60, **more: Any) -> Submitted:
    """Submit a job that counts from the end of its last run."""
    trigger = {"type": "interval", "every": f"PT{every}S", "mode": "fixed_delay"}
    return await an_active_schedule(database, trigger=trigger, **more)


async def staged_all(database: Database, **more: Any) -> int:
    """Stage until nothing is left to stage. Gives how many timers moved."""
    total = 0
    while moved := (await staged(database, **more)).count:
        total += moved
    return total


async def occurrences(database: Database, job_id: UUID | None = None, box: str = "ready") -> list[datetime]:
    """Give the scheduled moments of the runs in a box, in order."""
    rows = await database.fetch(
        f"select scheduled_at from duly.{box} where ($1::uuid is null or job_id = $1) and run_id <> job_id order by 1",
        job_id,
    )
    return [row[0] for row in rows]


async def next_fire(database: Database, job_id: UUID) -> dict[str, Any] | None:
    """Read the next fire of a schedule, with `is_armed`: whether it will come by itself; None when there is none."""
    row = await database.fetchrow(
        "select scheduled_at, previous_scheduled_at, generation, runs_left, last_run_id, due_at < 'infinity' as is_armed,"
        "       case when due_at < 'infinity' then due_at end as due_at"
        "  from duly.timers where job_id = $1 and run_id is null",
        job_id,
    )
    return None if row is None else dict(row)


async def pending(database: Database, job_id: UUID) -> datetime | None:
    """Give the moment that is armed next; None when none will come by itself."""
    fire = await next_fire(database, job_id)
    return fire["scheduled_at"] if fire is not None and fire["is_armed"] else None


async def state_of(database: Database, job_id: UUID) -> str:
    """Give the state of a job."""
    return str(await database.fetchval("select state from duly.jobs where job_id = $1", job_id))


async def skips(database: Database, job_id: UUID | None = None) -> list[Skipped]:
    """Read what was recorded as skipped, in order; one occurrence alone is a stretch of one."""
    rows = await database.fetch(
        "select reason, coalesce((detail->>'first')::timestamptz, scheduled_at),"
        "       coalesce((detail->>'last')::timestamptz, scheduled_at), coalesce((detail->>'count')::int, 1) from duly.attempts"
        " where outcome = 'skipped' and ($1::uuid is null or job_id = $1) order by 2, 1",
        job_id,
    )
    return [Skipped(*row) for row in rows]


async def taken(database: Database, worker_id: UUID | None = None) -> tuple[UUID, Run]:
    """Let a worker claim the only run there is to be had."""
    worker_id = worker_id or await a_worker(database)
    [run] = await claimed(database, worker_id)
    return worker_id, run


async def run_through(database: Database, outcome: Outcome | None = None) -> list[datetime]:
    """Let a worker claim all there is and settle it at once. Gives the moments it ran for."""
    worker_id = await a_worker(database)
    runs = await claimed(database, worker_id, limit=10_000)
    for run in runs:
        assert await settled(database, worker_id, run, outcome) == []
    return sorted(run.scheduled_at for run in runs)


async def lose_workers(database: Database, clock: Any) -> None:
    """Let every worker die, and the reaper notice."""
    reaper = Reaper(database, rng=RNG, log=Log("reaper"))
    await reaper.step()
    await clock.advance(20)
    assert await reaper.step() > 0


async def lane(database: Database, clock: Any, span: float, step: float = 1.0) -> list[int]:
    """Let a scheduler that holds every shard go on with the backfill lane for a while. Gives what it made at each look."""
    allowance, made = Allowance(), []
    for _ in range(int(span / step)):
        made.append((await go_on(database, ALL_SHARDS, clock.at, allowance.until(clock.at, 1.0))).created)
        allowance.spend(made[-1])
        await clock.advance(step)
    return made


async def is_sound(database: Database) -> bool:
    """Whether no promise is broken."""
    assert await history.verify(database) == []
    return True


class Driver:
    """Drives one scheduler as its loop does: it looks at least each second, and more often while something stands back."""

    def __init__(self, database: Database, clock: Any, scheduler_id: UUID, step: float = 0.2) -> None:
        self._database, self._clock, self._scheduler_id, self._step = database, clock, scheduler_id, step
        self.ran: list[datetime] = []

    async def drive(self, span: float, lasting: float) -> None:
        """Let time pass in small steps, with a worker on which each run lasts so long."""
        worker_id, end = await a_worker(self._database, lease=timedelta(days=1)), self._clock.at + seconds(span)
        under_way: list[tuple[datetime, Run]] = []
        while self._clock.at < end:
            await stage(self._database, self._scheduler_id, await hold(self._database, self._scheduler_id))
            for run in await claimed(self._database, worker_id):
                under_way.append((max(run.due_at, self._clock.at) + seconds(lasting), run))
                self.ran.append(run.scheduled_at)
            for ends_at, run in [item for item in under_way if item[0] <= self._clock.at]:
                under_way.remove((ends_at, run))
                await settled(self._database, worker_id, run)
            await self._clock.advance(self._step)
