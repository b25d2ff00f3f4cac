"""Metrics of the installation. Counters come from history as it grows, gauges from the boxes at the moment of the scrape."""

from __future__ import annotations

import asyncio
import platform
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from duly import __version__
from duly.api.health import Vitals
from duly.api.metrics.destinations import WAITING_RUNS_MAX, families
from duly.api.metrics.labels import OF_TENANT_MAX, OTHER, Labels
from duly.domain.diagnosis.doctor import HostClock
from duly.domain.errors import DulyError
from duly.domain.limits.overload import AGE_LIMIT, Overload
from duly.domain.limits.pause import SCOPE_KINDS
from duly.log import Log
from duly.store.boxes import ready
from duly.store.reads.overview import staging_lag_seconds
from duly.store.reads.pressure import Gauge, Pressure
from duly.store.reads.tail import DURATION_BOUNDS, SKEW_BOUNDS, Ended, Tail
from duly.store.tables import clocks, destinations, overloads, pauses

LOOK_SECONDS = 5.0
STAGE_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
HOSTS_MAX = 500
OVERLOADS_MAX = 2_000


class Histogram:
    """Counts per bucket, fed with counts."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, bucket: int, count: int, total: float) -> None:
        """Count `count` values that fell into a bucket, and add their sum."""
        self._counts[bucket] += count
        self._sum += total

    def observe(self, value: float) -> None:
        """Count one value."""
        self.add(bisect_left(self._bounds, value), 1, value)

    def family(self, name: str, help_text: str) -> HistogramMetricFamily:
        """Return it as a Prometheus family: each bucket includes those below it."""
        names = [*map(str, self._bounds), "+Inf"]
        cumulated = [sum(self._counts[: number + 1]) for number in range(len(self._counts))]
        return HistogramMetricFamily(
            name, help_text, buckets=list(zip(names, cumulated, strict=True)), sum_value=self._sum
        )


class Depth(msgspec.Struct, frozen=True):
    """The backlog of a queue."""

    runs: int
    oldest_age_seconds: float


class Totals(Collector):
    """Everything counted since this process started."""

    def __init__(self, vitals: Vitals) -> None:
        self._vitals = vitals
        self.runs: Counter[tuple[str, str]] = Counter()
        self.dead = 0
        self.expired = 0
        self.skew = Histogram(SKEW_BOUNDS)
        self.duration = Histogram(DURATION_BOUNDS)
        self.stage = Histogram(STAGE_BOUNDS)
        self.depths: dict[str, Depth] = {}
        self.pauses: Counter[str] = Counter()
        self.overloads: Sequence[Overload] = ()
        self.desired: dict[str, int] = {}
        self.lag_seconds = 0.0
        self.clocks: list[HostClock] = []
        self.clock_set_back_seconds = 0.0
        self.destinations = destinations.Totals({}, 0, 0, 0, 0, 0, 0)
        self._queues, self._overloaded = Labels(), Labels()

    def add(self, ended: Ended) -> None:
        """Count attempts that ended."""
        self.runs[self.label(ended.tenant, ended.queue), ended.outcome] += ended.runs
        self.dead += ended.runs if ended.became == "dead" else 0
        self.expired += ended.runs if ended.became == "expired" else 0
        if ended.outcome == "fenced":
            return
        if ended.skew_bucket is not None and ended.skew is not None:
            self.skew.add(ended.skew_bucket, ended.runs, ended.skew)
        if ended.duration_bucket is not None and ended.duration is not None:
            self.duration.add(ended.duration_bucket, ended.runs, ended.duration)

    def collect(self) -> Iterator[Metric]:
        """Return every metric."""
        yield from self._counters()
        yield from self._gauges()
        yield from self._clocks()
        yield from families(self.destinations)
        yield self.skew.family(
            "duly_fire_skew_seconds", "Start delay of attempts after they were due, without runs that had to wait."
        )
        yield self.duration.family("duly_run_duration_seconds", "Duration of attempts.")
        if self._vitals.scheduler is not None:
            yield self.stage.family("duly_stage_duration_seconds", "Duration of staging, sampled once a second.")
        yield InfoMetricFamily(
            "duly_build", "This Duly.", value={"version": __version__, "python": platform.python_version()}
        )

    def _counters(self) -> Iterator[Metric]:
        runs = CounterMetricFamily("duly_runs", "Attempts that ended, by outcome.", labels=["queue", "outcome"])
        for (queue, outcome), count in sorted(self.runs.items()):
            runs.add_metric([queue, outcome], count)
        yield runs
        fenced = sum(count for (_, outcome), count in self.runs.items() if outcome == "fenced")
        yield CounterMetricFamily("duly_dead_letters", "Runs that became dead letters.", value=self.dead)
        yield CounterMetricFamily("duly_expired_runs", "Runs that expired before they started.", value=self.expired)
        yield CounterMetricFamily("duly_fenced_outcomes", "Outcomes refused because the lease was lost.", value=fenced)
        if (expiries := self._vitals.lease_expiries) is not None:
            yield CounterMetricFamily("duly_lease_expiries", "Expired workers, reaped here.", value=expiries())

    def _gauges(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("duly_queue_depth", "Runs that are ready, counted up to 100,000.", labels=["queue"])
        oldest = GaugeMetricFamily(
            "duly_queue_oldest_age_seconds", "Age of the oldest ready run since it was due.", labels=["queue"]
        )
        for queue, seen in sorted(self.depths.items()):
            depth.add_metric([queue], seen.runs)
            oldest.add_metric([queue], seen.oldest_age_seconds)
        yield depth
        yield oldest
        yield from self._pressure()
        family = GaugeMetricFamily("duly_pauses", "Pauses, by scope.", labels=["scope"])
        for kind in SCOPE_KINDS:
            family.add_metric([kind], self.pauses[kind])
        yield family
        yield GaugeMetricFamily("duly_staging_lag_seconds", "Seconds that staging is behind.", value=self.lag_seconds)
        if (scheduler := self._vitals.scheduler) is not None:
            yield GaugeMetricFamily("duly_shards_held", "Shards that this scheduler holds.", value=scheduler.shards)

    def _clocks(self) -> Iterator[Metric]:
        offset = GaugeMetricFamily(
            "duly_clock_offset_seconds",
            "Seconds that a host's clock is ahead of the database's, measured by a process there.",
            labels=["role", "host"],
        )
        worst: dict[tuple[str, str], float] = {}
        for one in self.clocks:
            worst[one.role, one.host] = max(worst.get((one.role, one.host), 0.0), one.offset_seconds, key=abs)
        for labels, seconds in sorted(worst.items()):
            offset.add_metric(labels, seconds)
        yield offset
        yield GaugeMetricFamily(
            "duly_database_clock_set_back_seconds",
            "Seconds that the database's clock was set back; schedules do not fire while it is not 0.",
            value=self.clock_set_back_seconds,
        )

    def _pressure(self) -> Iterator[Metric]:
        overloaded = GaugeMetricFamily(
            "duly_queue_overloaded",
            "1 while the oldest due run of a tenant in a queue is older than the queue's limit.",
            labels=["tenant", "queue"],
        )
        age = GaugeMetricFamily(
            "duly_queue_overload_age_seconds",
            "Age of the oldest due run of a tenant in a queue in which it is overloaded.",
            labels=["tenant", "queue"],
        )
        for (tenant, queue), seconds in sorted(self._overload_ages().items()):
            overloaded.add_metric([str(tenant), queue], 1)
            age.add_metric([str(tenant), queue], seconds)
        desired = GaugeMetricFamily(
            "duly_desired_workers", "Number of workers that keep up with a queue and its next peak.", labels=["queue"]
        )
        for queue in sorted({*self.depths, *self.desired}):
            desired.add_metric([queue], self.desired.get(queue, 0))
        yield overloaded
        yield age
        yield desired

    def _overload_ages(self) -> dict[tuple[int, str], float]:
        """Return the age of each overload; for those of a tenant that share a label, the highest."""
        found: dict[tuple[int, str], float] = {}
        for one in self.overloads:
            is_admitted = self._overloaded.admits(one.tenant, (one.tenant, one.queue))
            label = one.tenant, one.queue if is_admitted else OTHER
            found[label] = max(found.get(label, 0.0), one.age.total_seconds())
        return found

    def measure(self, rows: Iterable[Mapping[str, Any]], now: datetime) -> None:
        """Take the backlog of each queue; a queue that was seen before does not vanish when it is empty."""
        self.depths = {queue: Depth(0, 0.0) for queue in self.depths}
        for row in rows:
            queue = OTHER if row["queue"] is None else self.label(row["tenant"], row["queue"])
            before, age = self.depths.get(queue, Depth(0, 0.0)), (now - row["oldest_due_at"]).total_seconds()
            self.depths[queue] = Depth(before.runs + row["runs"], max(before.oldest_age_seconds, age))

    def want(self, pressure: Pressure) -> None:
        """Take the desired workers of each queue that has a label."""
        for queue, tenant in sorted(pressure.tenants.items()):
            self.label(tenant, queue)
        self.desired = {queue: pressure.desired_workers(queue) for queue in pressure.loads if self._queues.knows(queue)}

    def label(self, tenant: int, queue: str) -> str:
        """Return the label of a queue: its name, or `other` where the tenant has too many."""
        return queue if self._queues.admits(tenant, queue) else OTHER


class Metrics:
    """Keeps the totals up to date and writes them out."""

    def __init__(self, vitals: Vitals, log: Log, age_limit: timedelta = AGE_LIMIT) -> None:
        self._gauge = Gauge(vitals.database, age_limit)
        self.totals = Totals(vitals)
        self._vitals = vitals
        self._log = log
        self._tail = Tail(vitals.database)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self.totals)
        self._looking = asyncio.Lock()
        self._stepped_at: float | None = None

    def add(self, collector: Collector) -> None:
        """Include the metrics of another collector."""
        self._registry.register(collector)

    async def run(self) -> None:
        """Look periodically, so that a scrape finds little left to read."""
        looks = 0
        while True:
            self._sample_stage()
            if looks % LOOK_SECONDS == 0:
                await self._look_safely()
            looks += 1
            await self._vitals.clock.sleep(1.0)

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics as of now, and their content type."""
        await self._look_safely()
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    async def look(self) -> None:
        """Count what ended since the last look, and measure the queues."""
        async with self._looking:
            await self._count_ended()
            now = await self._vitals.database.read_clock()
            rows = await ready.depth_by_tenant(self._vitals.database, OF_TENANT_MAX, list(self.totals.depths))
            standing = await pauses.standing(self._vitals.database)
            self.totals.destinations = await destinations.totals(self._vitals.database, WAITING_RUNS_MAX)
            self.totals.overloads = await overloads.oldest(self._vitals.database, OVERLOADS_MAX)
            pressure = await self._gauge.read()
            self.totals.lag_seconds = await staging_lag_seconds(self._vitals.database)
            self.totals.clocks = (await clocks.recorded(self._vitals.database))[:HOSTS_MAX]
            back = await clocks.set_back(self._vitals.database)
            self.totals.clock_set_back_seconds = 0.0 if back is None else back.seconds
        self.totals.measure(rows, now)
        self.totals.want(pressure)
        self.totals.pauses = Counter(pause.scope.kind for pause in standing)

    async def _count_ended(self) -> None:
        """Count what ended since the last look; after a long break that takes several."""
        is_behind = True
        while is_behind:
            for ended in await self._tail.look():
                self.totals.add(ended)
            is_behind = self._tail.is_behind
            if self._tail.was_cut_off:
                self._log.warning(
                    "metrics_cut_off", next="counters lack the runs that ended before this and since the last look"
                )

    async def _look_safely(self) -> None:
        try:
            await self.look()
        except DulyError as error:
            self._log.warning("metrics_stale", error=str(error))
        except Exception as error:  # noqa: BLE001 - figures are never worth a crash of what they describe
            self._log.error("metrics_failed", error=repr(error))

    def _sample_stage(self) -> None:
        scheduler = self._vitals.scheduler
        if scheduler is not None and scheduler.stepped_at is not None and scheduler.stepped_at != self._stepped_at:
            self._stepped_at = scheduler.stepped_at
            self.totals.stage.observe(scheduler.stage_seconds)
