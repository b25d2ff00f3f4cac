"""Metrics of the whole installation: one process at a time reads them, by turns, and all others read its row.

So any number of processes may export them at the cost of one. Counters go on from the row that the last turn has left:
they survive every process, and a turn that was cut short is as if it had not been.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeAlias

import msgspec

from duly.domain.diagnosis.figures import ATTEMPT_BOUNDS, DELAY_BOUNDS, DURATION_BOUNDS
from duly.domain.diagnosis.labels import OF_TENANT_MAX, OTHER, Labels
from duly.domain.limits.overload import Overload
from duly.log import Log
from duly.store.connection.database import Database
from duly.store.connection.replica import Replica, is_failure
from duly.store.connection.statements import load
from duly.store.reads.overview import staging_lag_seconds
from duly.store.reads.pressure import Gauge, Pressure
from duly.store.reads.tail import Ended, Position, Tail
from duly.store.tables import clocks, destinations, overloads, pauses

SQL = load("reads/installation")
LIVE, BACKFILL = "live", "backfill"
COUNTED_MAX = 100_000
COUNTING_SECONDS = 10.0  # that one turn counts what ended, so that it ends in time; the next goes on from there
_TURN_MAX = timedelta(minutes=1)  # without an answer, after which another process has the turn
_HEADS_MAX = 2_000
_HOSTS_MAX = 500
_OVERLOADS_MAX = 2_000
_BYTES_SECONDS = 60.0  # the size of the database is read so often: that lists its files
_LABEL_KEPT_SECONDS = 7 * 86_400.0  # of a queue in which nothing ends any more
Waiting: TypeAlias = tuple[Sequence[Any], Sequence[Any]]  # counts of what waits, and the oldest beyond what is counted
_RETRIED = ("retrying", "ready", "scheduled", "blocked")
_UNSUCCESSFUL = ("failed", "timed_out", "lost")


class QueueCounts(msgspec.Struct, kw_only=True):
    """Attempts that ended in a queue since it has its label, and the tenant that brought it."""

    tenant: int
    seen_at: float = 0.0
    outcomes: dict[str, int] = {}
    retries: int = 0
    dead: int = 0
    delays: list[int] = msgspec.field(default_factory=lambda: [0] * (len(DELAY_BOUNDS) + 1))
    delay_seconds: float = 0.0


class Counts(msgspec.Struct, kw_only=True):
    """Attempts that ended, up to a position in history."""

    position: Position | None = None
    queues: dict[str, QueueCounts] = {}
    expired: int = 0
    fenced: int = 0
    durations: list[int] = msgspec.field(default_factory=lambda: [0] * (len(DURATION_BOUNDS) + 1))
    duration_seconds: float = 0.0
    attempts: list[int] = msgspec.field(default_factory=lambda: [0] * (len(ATTEMPT_BOUNDS) + 1))
    attempts_total: int = 0

    def add(self, ended: Ended, queue: str, now: float) -> None:
        """Count attempts that ended in a queue of this label."""
        counts = self.queues.setdefault(queue, QueueCounts(tenant=ended.tenant))
        counts.seen_at = now
        counts.outcomes[ended.outcome] = counts.outcomes.get(ended.outcome, 0) + ended.runs
        if ended.outcome == "fenced":
            self.fenced += ended.runs
            return
        counts.retries += ended.runs if ended.outcome in _UNSUCCESSFUL and ended.became in _RETRIED else 0
        counts.dead += ended.runs if ended.became == "dead" else 0
        self.expired += ended.runs if ended.became == "expired" else 0
        if ended.delay_bucket is not None:
            counts.delays[ended.delay_bucket] += ended.runs
            counts.delay_seconds += ended.delay or 0.0
        if ended.duration_bucket is not None:
            self.durations[ended.duration_bucket] += ended.runs
            self.duration_seconds += ended.duration or 0.0
        if ended.attempts_bucket is not None:
            self.attempts[ended.attempts_bucket] += ended.runs
            self.attempts_total += ended.attempts or 0


class Depth(msgspec.Struct, frozen=True):
    """The backlog of a lane of a queue."""

    queue: str
    lane: str
    runs: int
    oldest_age_seconds: float


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """Live processes, and runs that wait where no queue shows it."""

    schedulers: int
    workers: int
    stalled_workers: int
    shards_held: int
    shard_grants: int
    reaper_age_seconds: float | None
    lease_expiries: int
    leased_runs: int
    unroutable_runs: int
    dead_letters: int


class DatabaseHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the PostgreSQL. An `xmin` is how many transactions ago the oldest rows were deleted that it cannot vacuum."""

    connections: int
    connections_max: int
    oldest_transaction_seconds: float
    prepared_transactions: int
    oldest_prepared_seconds: float
    xmin_transaction: int
    xmin_prepared: int
    xmin_slot: int
    xmin_replica: int
    freeze_age: int
    wal_bytes: int
    slot_retained_bytes: int
    replica_lag_seconds: float


class Installation(msgspec.Struct, kw_only=True):
    """All figures, read at one moment. No label has more values than `Labels` admits."""

    counts: Counts
    depths: list[Depth]
    desired_workers: dict[str, int]
    overloads: list[tuple[int, str, float]]
    pauses: dict[str, int]
    lag_seconds: float
    engine: Engine
    clocks: list[tuple[str, str, float]]
    clock_set_back_seconds: float
    destinations: destinations.Totals
    database: DatabaseHealth
    dead_rows: dict[str, int]
    bytes: int
    bytes_read_at: float


class Seen(msgspec.Struct, frozen=True):
    """The figures, and how old they are."""

    figures: Installation
    age_seconds: float


class Reader:
    """Reads the figures for a process: its own when it is its turn, and else those of another."""

    def __init__(
        self, gauge: Gauge, database: Database, log: Log, every: timedelta, replica: Replica | None = None
    ) -> None:
        self._replica = replica
        self._gauge = gauge
        self._database = database
        self._log = log
        self._every = every

    async def read(self) -> Seen | None:
        """Return the figures; None: the first turn is another process's, and not over. Raises Unavailable."""
        turn = await self._database.fetchrow(SQL["take_turn"], self._every, _TURN_MAX)
        if turn is not None and (seen := await self._taken(turn["turn"], turn["figures"])) is not None:
            return seen
        row = await self._database.fetchrow(SQL["kept"])
        figures = None if row is None else self._decode(row["figures"])
        return None if row is None or figures is None else Seen(figures, max(0.0, row["age"]))

    async def _taken(self, turn: int, figures: str | None) -> Seen | None:
        """Read all figures in our turn, and write them; None: another process had the next turn before we ended."""
        try:
            now = await self._installation(self._decode(figures))
        except BaseException:
            with suppress(Exception):  # a database that does not answer lets the turn run out
                await self._database.execute(SQL["give_back"], turn)
            raise
        age = await self._database.fetchval(SQL["keep"], turn, msgspec.json.encode(now).decode())
        return None if age is None else Seen(now, max(0.0, age))

    def _decode(self, text: str | None) -> Installation | None:
        """Read stored figures; those of a version that counts something else are as if there were none."""
        try:
            return None if text is None else msgspec.json.decode(text, type=Installation)
        except msgspec.ValidationError as error:
            self._log.warning("metrics_of_another_version", error=str(error), next="counters begin again")
            return None

    async def _installation(self, before: Installation | None) -> Installation:
        database = self._database
        now = await database.read_clock()
        counts = await self._count(before.counts if before else Counts(), now.timestamp())
        labels = _labels_of(counts)
        depths, totals, pressure = await self._measured(list(counts.queues))
        back = await clocks.set_back(database)
        size, size_read_at = await self._bytes(before, now.timestamp())
        standing = await pauses.standing(database)
        return Installation(
            counts=counts,
            depths=_depths(depths, labels, list(counts.queues), now),
            desired_workers=_desired_workers(labels, pressure),
            overloads=_overloads(await overloads.oldest(database, _OVERLOADS_MAX)),
            pauses=dict(Counter(pause.scope.kind for pause in standing)),
            lag_seconds=await staging_lag_seconds(database),
            engine=Engine(**await database.fetch_one(SQL["engine"], COUNTED_MAX)),
            clocks=[(one.role, one.host, one.offset_seconds) for one in (await clocks.recorded(database))[:_HOSTS_MAX]],
            clock_set_back_seconds=0.0 if back is None else back.seconds,
            destinations=totals,
            database=DatabaseHealth(**await database.fetch_one(SQL["database"])),
            dead_rows={row["name"]: row["dead_rows"] for row in await database.fetch(SQL["dead_rows"])},
            bytes=size,
            bytes_read_at=size_read_at,
        )

    async def _count(self, counts: Counts, now: float) -> Counts:
        """Count what ended since the last turn; after a long break that takes several looks, and several turns."""
        _forget(counts, now)
        tail, labels = Tail(self._database, counts.position), _labels_of(counts)
        until = self._database.clock.monotonic() + COUNTING_SECONDS
        is_going_on = True
        while is_going_on:
            for ended in await tail.look():
                counts.add(ended, labels.label(ended.tenant, ended.queue), now)
            is_going_on = tail.is_behind and self._database.clock.monotonic() < until
            if tail.was_cut_off:
                self._log.warning(
                    "metrics_cut_off",
                    next="counters lack some runs: those that ended between the last look and this one",
                )
        counts.position = tail.position
        return counts

    async def _measured(self, first: Sequence[str]) -> tuple[Waiting, destinations.Totals, Pressure]:
        """Read what costs most: from the replica, if that may be, and else from the primary."""
        if self._replica is not None and (pools := self._replica.pools) is not None:
            try:
                return await self._measured_at(pools.database, first)
            except Exception as error:
                if not is_failure(error):
                    raise
                self._replica.failed(error)
        return await self._measured_at(self._database, first)

    async def _measured_at(
        self, database: Database, first: Sequence[str]
    ) -> tuple[Waiting, destinations.Totals, Pressure]:
        rows = await database.fetch(SQL["depths"], OF_TENANT_MAX, first, COUNTED_MAX)
        are_all = sum(row["runs"] for row in rows) < COUNTED_MAX
        heads = [] if are_all else await database.fetch(SQL["heads"], _HEADS_MAX)
        totals = await destinations.totals(database, COUNTED_MAX)
        return (rows, heads), totals, await self._gauge.read(replica=database)

    async def _bytes(self, before: Installation | None, now: float) -> tuple[int, float]:
        if before is not None and 0 <= now - before.bytes_read_at < _BYTES_SECONDS:
            return before.bytes, before.bytes_read_at
        return await self._database.fetchval(SQL["bytes"]), now


def _depths(waiting: Waiting, labels: Labels, first: Sequence[str], now: datetime) -> list[Depth]:
    """Return the backlog of each queue; one in which something has ended does not vanish when it is empty."""
    found = {(queue, lane): Depth(queue, lane, 0, 0.0) for queue in first for lane in (LIVE, BACKFILL)}
    rows, heads = waiting
    for row in rows:
        queue = OTHER if row["queue"] is None else labels.label(row["tenant"], row["queue"])
        _add_depth(found, queue, row, row["runs"], now)
    for row in heads:
        _add_depth(found, labels.label(row["tenant"], row["queue"]), row, 0, now)
    for queue in {queue for queue, _ in found}:
        for lane in (LIVE, BACKFILL):
            found.setdefault((queue, lane), Depth(queue, lane, 0, 0.0))
    return [depth for _, depth in sorted(found.items())]


def _labels_of(counts: Counts) -> Labels:
    return Labels((one.tenant, queue) for queue, one in counts.queues.items() if queue != OTHER)


def _forget(counts: Counts, now: float) -> None:
    """Free the labels of queues in which nothing has ended for long."""
    for queue, one in list(counts.queues.items()):
        if now - one.seen_at > _LABEL_KEPT_SECONDS:
            del counts.queues[queue]


def _add_depth(found: dict[tuple[str, str], Depth], queue: str, row: Any, runs: int, now: datetime) -> None:
    lane = BACKFILL if row["is_backfill"] else LIVE
    before = found.get((queue, lane), Depth(queue, lane, 0, 0.0))
    age = max(before.oldest_age_seconds, (now - row["oldest_due_at"]).total_seconds())
    found[queue, lane] = Depth(queue, lane, before.runs + runs, age)


def _desired_workers(labels: Labels, pressure: Pressure) -> dict[str, int]:
    """Return the desired workers of each queue that has a label."""
    for queue, tenant in sorted(pressure.tenants.items()):
        labels.label(tenant, queue)
    return {queue: pressure.desired_workers(queue) for queue in pressure.loads if labels.knows(queue)}


def _overloads(standing: Sequence[Overload]) -> list[tuple[int, str, float]]:
    """Return the age of each overload; for those of a tenant that share a label, the highest."""
    labels, found = Labels(), dict[tuple[int, str], float]()
    for one in standing:
        label = one.tenant, one.queue if labels.admits(one.tenant, (one.tenant, one.queue)) else OTHER
        found[label] = max(found.get(label, 0.0), one.age.total_seconds())
    return [(tenant, queue, seconds) for (tenant, queue), seconds in sorted(found.items())]
