"""The figures and the health of one process, which a worker and a scheduler serve on `metrics_port`.

They cover this process alone, so that a sum over all of them is right; `duly_runs_total` and the queues are the API's.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from duly.api.health import LAG_SECONDS_MAX, REAPER_AGE_SECONDS_MAX, STEP_AGE_SECONDS_MAX, Check
from duly.api.metrics.server import RoleServer
from duly.api.server.listen import address_of, listen
from duly.cli.render.say import say
from duly.clock import SystemClock
from duly.domain.diagnosis.loops import AGE_SECONDS_MAX, overdue
from duly.log import Log
from duly.settings import Settings
from duly.store.reads.tail import SKEW_BOUNDS

if TYPE_CHECKING:  # Neither role loads the other.
    from duly.maintenance.service import Maintenance
    from duly.scheduler.service import Scheduler
    from duly.worker.service import Worker, WorkerHealth

LOOP_AGE_SECONDS_MAX = 5.0
_counter, _gauge = CounterMetricFamily, GaugeMetricFamily


class WorkerFigures(Collector):
    """The figures of one worker process."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._clock = SystemClock()
        self._reading = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """Return every metric."""
        health, figures = self._health(), self._worker.figures
        yield _counter("duly_worker_runs_started", "Runs that this worker has started.", figures.started)
        ended = _counter("duly_worker_runs_ended", "Attempts that ended here, by outcome.", labels=["outcome"])
        yield _labelled(ended, figures.ended)
        yield _counter(
            "duly_worker_runs_deferred", "Runs that wait elsewhere since they started here.", figures.deferred
        )
        yield _counter("duly_worker_outcomes_settled", "Outcomes that the database has taken.", health.settled)
        yield _counter("duly_worker_outcomes_fenced", "Outcomes refused because the lease was lost.", health.fenced)
        yield _counter("duly_worker_lives", "How often this worker has registered.", health.lives)
        yield _gauge("duly_worker_runs_running", "Runs that are being executed.", health.running)
        yield _gauge("duly_worker_runs_waiting", "Runs that are due and wait for a slot.", health.waiting)
        yield _gauge("duly_worker_runs_held", "Runs that this worker holds.", health.held)
        slots = _gauge("duly_worker_slots", "How many runs may run at once, by pool.", labels=["pool"])
        yield _labelled(slots, self._worker.slots)
        if (age := _age(self._clock, figures.ticked_at)) is not None:
            yield _gauge("duly_worker_loop_age_seconds", "How long ago the engine last looked at what is due.", age)
        names = [*map(str, SKEW_BOUNDS), "+Inf"]
        delays = list(figures.delays)
        cumulated = [sum(delays[: number + 1]) for number in range(len(delays))]
        yield HistogramMetricFamily(
            "duly_worker_start_delay_seconds",
            "How late attempts started here after they were due, without runs that had to wait.",
            buckets=list(zip(names, cumulated, strict=True)),
            sum_value=figures.delay_seconds,
        )

    def _health(self) -> WorkerHealth:
        with self._reading:  # it adds up what earlier lives have settled, and requests are concurrent
            return self._worker.health

    def checks(self) -> list[Check]:
        """Return whether this worker can take runs and start them."""
        health = self._health()
        leased = "its lease is valid" if health.safe else "its lease may have run out, so it takes no runs"
        return [
            Check("registered", health.registered, int(health.registered), None, _registered(health.registered)),
            Check("lease", health.safe, int(health.safe), None, leased),
            _at_most(
                "turn_age_seconds",
                _age(self._clock, self._worker.figures.ticked_at),
                LOOP_AGE_SECONDS_MAX,
                "since the engine last looked at what is due",
            ),
        ]


class SchedulerFigures(Collector):
    """The figures of one scheduler process."""

    def __init__(self, scheduler: Scheduler, maintenance: Maintenance) -> None:
        self._scheduler = scheduler
        self._maintenance = maintenance
        self._clock = SystemClock()

    def collect(self) -> Iterator[Metric]:
        """Return every metric."""
        health = self._scheduler.health
        yield _counter("duly_scheduler_runs_staged", "Runs that this scheduler has staged.", health.staged)
        yield _counter("duly_scheduler_runs_backfilled", "Missed runs that it has created.", health.backfilled)
        yield _counter(
            "duly_lease_expiries", "Workers whose lease ran out, reaped here.", self._maintenance.reaper.reaped
        )
        yield _gauge("duly_shards_held", "Shards this scheduler holds.", health.shards)
        yield _gauge("duly_scheduler_stage_seconds", "How long its last staging took.", health.stage_seconds)
        yield _gauge("duly_scheduler_lag_seconds", "How far its staging is behind.", health.lag_seconds)
        if (age := _age(self._clock, health.stepped_at)) is not None:
            yield _gauge("duly_scheduler_stage_age_seconds", "How long ago it last staged.", age)
        rounds = _gauge(
            "duly_scheduler_round_age_seconds", "How long ago each loop last ended a round.", labels=["loop"]
        )
        yield _labelled(rounds, self._maintenance.rounds.ages(self._clock.monotonic()))

    def checks(self) -> list[Check]:
        """Return whether this scheduler stages and maintains. One without a shard is on standby, and healthy."""
        health, now = self._scheduler.health, self._clock.monotonic()
        ages = self._maintenance.rounds.ages(now)
        overdue_loops = ", ".join(overdue(ages))
        says = f"these loops have not ended a round: {overdue_loops}" if overdue_loops else "every loop ends its rounds"
        return [
            _at_most(
                "stage_age_seconds",
                _age(self._clock, health.stepped_at),
                STEP_AGE_SECONDS_MAX,
                "since the last staging",
            ),
            _at_most("staging_lag_seconds", health.lag_seconds, LAG_SECONDS_MAX, "behind in staging"),
            _at_most(
                "reaper_age_seconds",
                _age(self._clock, self._maintenance.reaped_at),
                REAPER_AGE_SECONDS_MAX,
                "since the last look for dead workers",
            ),
            Check(
                "round_age_seconds", not overdue_loops, round(max(ages.values(), default=0.0), 3), AGE_SECONDS_MAX, says
            ),
            Check("shards_held", True, health.shards, None, f"it holds {health.shards} shards"),
        ]


@contextmanager
def served(settings: Settings, command: str, figures: WorkerFigures | SchedulerFigures) -> Iterator[None]:
    """Serve the figures of this process on its `metrics_port`. Raises PortTaken, WrongSettings."""
    listener = listen_for_metrics(settings, command)
    server = RoleServer(listener, [figures], figures.checks)
    server.start()
    print_address(listener)
    try:
        yield
    finally:
        server.stop()


def listen_for_metrics(settings: Settings, command: str) -> socket.socket:
    """Bind the `metrics_port`. No key crosses it, so it needs no TLS. Raises PortTaken, WrongSettings."""
    assert settings.metrics_port is not None
    return listen(
        settings.metrics_host, settings.metrics_port, plain_http=True, command=command, setting="metrics_port"
    )


def print_address(listener: socket.socket) -> None:
    """Print where the figures are: the port may be any free one."""
    address = address_of(listener)
    say(f"metrics at {address}/metrics, health at {address}/readyz?verbose")
    Log("metrics").info("metrics_served", address=address)


def _registered(is_registered: bool) -> str:
    return (
        "it is registered"
        if is_registered
        else "it is not registered: the database does not answer, or it starts or stops"
    )


def _labelled(family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, float]) -> Metric:
    for label, value in sorted(values.items()):
        family.add_metric([label], value)
    return family


def _at_most(name: str, value: float | None, limit: float, what: str) -> Check:
    if value is None:
        return Check(name, False, None, limit, f"has not happened yet: {what}")
    return Check(name, value <= limit, round(value, 3), limit, f"{value:.1f} s {what}, at most {limit:g} s")


def _age(clock: SystemClock, then: float | None) -> float | None:
    return None if then is None else clock.monotonic() - then
