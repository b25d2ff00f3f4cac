"""Pressure on queues: their throughput, read from the end of history, and the runs about to be due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import asyncpg
import msgspec

from duly.domain.limits.overload import AGE_LIMIT
from duly.domain.limits.scaling import (
    MINUTES_AHEAD,
    SLOTS_DEFAULT,
    QueueLoad,
    Throughput,
    desired_workers,
    spare_per_second,
    spread,
)
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.schedule.planning import moments_between
from duly.domain.triggers.schedule.schedules import Schedule
from duly.domain.triggers.schedule.timing import read_calendars, schedule_of
from duly.store.boxes import ready
from duly.store.connection.database import Database
from duly.store.connection.statements import load
from duly.store.reads.tail import growing
from duly.store.tables import overloads, schedules, workers
from duly.store.tables.workers import WorkerRow

SQL = load("reads/pressure")
_LATELY = timedelta(minutes=3)
_BLOCKS_MAX = 100  # of each part of history; some ten thousand attempts
_TIMERS_MAX = 200_000
_COHORTS_MAX = 200  # whose rhythm is computed, the largest first
_FIRES_MAX = 60 * MINUTES_AHEAD
_KEPT_SECONDS = 10.0


async def throughputs(database: Database) -> dict[str, Throughput]:
    """Read the recent throughput of each queue, from the last blocks of history."""
    leaves = await growing(database)
    if not leaves:
        return {}
    names, floors = [name for name, _ in leaves], [(max(0, blocks - _BLOCKS_MAX), 0) for _, blocks in leaves]
    cut = [(name, floor) for name, floor in zip(names, floors, strict=True) if floor > (0, 0)]
    try:
        rows = await database.fetch(_united("settled", names, 2), _LATELY, *floors)
        seconds = await _seconds_read(database, cut)
    except asyncpg.UndefinedTableError:
        return {}  # a partition was dropped between the statements: the next look sees it
    runs: Counter[str] = Counter()
    worked: dict[str, Counter[str]] = {}
    for row in rows:
        runs[row["queue"]] += row["runs"]
        worked.setdefault(row["queue"], Counter())[row["handler"]] += max(0.0, row["seconds"])
    return {queue: _throughput(count, seconds, worked[queue]) for queue, count in runs.items()}


def _throughput(runs: int, seconds: float, worked: Counter[str]) -> Throughput:
    [(busiest, _)] = worked.most_common(1)
    return Throughput(runs / seconds, worked.total() / runs, busiest)


async def _seconds_read(database: Database, cut: Sequence[tuple[str, tuple[int, int]]]) -> float:
    """Return the time that the blocks read cover: less than wanted where many runs end."""
    if not cut:
        return _LATELY.total_seconds()
    firsts = _united("first", [name for name, _ in cut], 1)
    row = await database.fetch_one(SQL["covered"].format(firsts=firsts), *(floor for _, floor in cut))
    since, now = row
    covered = _LATELY if since is None else min(_LATELY, now - since)
    return max(1.0, covered.total_seconds())


def _united(name: str, leaves: Sequence[str], first: int) -> str:
    return " union all ".join(SQL[name].format(leaf=leaf, number=number) for number, leaf in enumerate(leaves, first))


class Upcoming(msgspec.Struct):
    """The runs due in a queue in each of the next minutes, and one of their tenants."""

    tenant: int
    minutes: list[int] = msgspec.field(default_factory=lambda: [0] * MINUTES_AHEAD)


async def upcoming(database: Database) -> dict[str, Upcoming]:
    """Count the runs due in each of the next minutes, by queue; a schedule counts in every minute that it fires in."""
    rows = await database.fetch(SQL["upcoming"], MINUTES_AHEAD, _TIMERS_MAX)
    rhythms = await _rhythms(database, rows)
    found: dict[str, Upcoming] = {}
    for row in rows:
        if (schedule := rhythms.get(row["cohort"])) is not None:
            counts = _fires(schedule, row["scheduled_at"], row["minute"], row["fires"])
        else:
            counts = spread(row["minute"], row["fires"], row["every_seconds"])
        queue = found.setdefault(row["queue"], Upcoming(row["tenant"]))
        queue.minutes = [one + other for one, other in zip(queue.minutes, counts, strict=True)]
    return found


async def _rhythms(database: Database, rows: Sequence[asyncpg.Record]) -> dict[int, Schedule]:
    """Read the schedules of the largest cohorts; of others only the first fire is counted."""
    sizes: Counter[int] = Counter()
    for row in rows:
        if row["cohort"] is not None:
            sizes[row["cohort"]] += row["fires"]
    found: dict[int, Schedule] = {}
    for one in await schedules.definitions(database, [cohort for cohort, _ in sizes.most_common(_COHORTS_MAX)]):
        try:
            found[one.cohort] = schedule_of(one.schedule, None, None, read_calendars(one.calendars))
        except TriggerError:
            continue
    return found


def _fires(schedule: Schedule, first_at: datetime, minute: int, count: int) -> list[int]:
    """Count the fires of a schedule from its first on; its jitter shifts all of them alike."""
    end = first_at + timedelta(minutes=MINUTES_AHEAD - minute)
    found = [0] * MINUTES_AHEAD
    found[min(minute, MINUTES_AHEAD - 1)] += count
    for moment in moments_between(schedule, first_at + timedelta(microseconds=1), end, _FIRES_MAX):
        number = minute + int((moment - first_at).total_seconds() // 60)
        if number < MINUTES_AHEAD:
            found[number] += count
    return found


class Depth(msgspec.Struct, frozen=True):
    """The backlog of a queue."""

    runs: int
    oldest_due_at: datetime


class Pressure(msgspec.Struct, frozen=True):
    """The pressure on each queue of the whole fleet, and the workers that it needs; of one tenant, its backlog in each."""

    read_at: datetime
    loads: dict[str, QueueLoad]
    limits: dict[str, timedelta]
    age_limit: timedelta
    living: Sequence[WorkerRow]
    own: dict[str, Depth]
    tenants: dict[str, int]  # one tenant of each queue that a worker serves or in which something is due

    def age_limit_seconds(self, queue: str) -> float:
        """Return the maximum age of the oldest due run of a queue."""
        return self.limits.get(queue, self.age_limit).total_seconds()

    def busiest_handler(self, queue: str) -> str | None:
        """Return the handler with the most total time in a queue lately, by which the slots of its workers are counted."""
        return self.loads.get(queue, QueueLoad()).throughput.handler

    def desired_workers(self, queue: str) -> int:
        """Return how many workers a queue needs."""
        return desired_workers(self.loads.get(queue, QueueLoad()))

    def spare_per_second(self, queues: Iterable[str]) -> float:
        """Return the spare capacity of the workers of some queues, in runs a second."""
        return sum(spare_per_second(self.loads.get(queue, QueueLoad())) for queue in queues)

    def upcoming(self, queue: str) -> list[int]:
        """Return how many runs of a queue fall due in each of the next minutes."""
        return list(self.loads.get(queue, QueueLoad()).upcoming) or [0] * MINUTES_AHEAD


class Gauge:
    """Reads the pressure on each queue. Runs about to be due are read every ten seconds, all else each time."""

    def __init__(self, database: Database, age_limit: timedelta = AGE_LIMIT) -> None:
        self.age_limit = age_limit
        self._database = database
        self._read_at: float | None = None
        self._upcoming: dict[str, Upcoming] = {}

    async def read(self, tenant: int = TENANT_DEFAULT, replica: Database | None = None) -> Pressure:
        """Read all queues once, and the backlog of a tenant in each; from a replica if one is given."""
        database = replica or self._database
        now = await database.read_clock()
        depths = {row["queue"]: row for row in await ready.depth_and_own(database, tenant)}
        living = [row for row in await workers.live(database) if row.until > row.read_at]
        limits, worked, fires = (
            await overloads.limits(database),
            await throughputs(database),
            await self._look_ahead(database),
        )
        names = {*depths, *fires, *worked, *(queue for row in living for queue in row.queues)}
        found = {}
        for name in names:
            depth = depths.get(name)
            throughput = worked.get(name, Throughput())
            slots = [slots for row in living if name in row.queues and (slots := row.slots_for(throughput.handler))]
            found[name] = QueueLoad(
                slots_per_worker=sum(slots) / len(slots) if slots else SLOTS_DEFAULT,
                slots=sum(slots),
                throughput=throughput,
                ready=depth["runs"] if depth else 0,
                oldest_age_seconds=max(0.0, (now - depth["oldest_due_at"]).total_seconds()) if depth else 0.0,
                age_limit_seconds=limits.get(name, self.age_limit).total_seconds(),
                upcoming=fires[name].minutes if name in fires else (),
            )
        own = {
            name: Depth(row["own_runs"], row["own_oldest_due_at"]) for name, row in depths.items() if row["own_runs"]
        }
        served = {queue: row.tenant or TENANT_DEFAULT for row in living for queue in row.queues}
        tenants = {name: queue.tenant for name, queue in fires.items()} | served
        return Pressure(now, found, limits, self.age_limit, living, own, tenants)

    async def _look_ahead(self, database: Database) -> dict[str, Upcoming]:
        now = database.clock.monotonic()
        if self._read_at is None or now - self._read_at > _KEPT_SECONDS:
            self._upcoming, self._read_at = await upcoming(database), now
        return self._upcoming
