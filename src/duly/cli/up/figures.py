"""The metrics of one worker or scheduler process; and their way from the workers of a `duly up` to its API."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from duly.api.metrics.definitions import BY_NAME, Family, labelled, one
from duly.api.metrics.exposition import merged
from duly.clock import SystemClock

if TYPE_CHECKING:  # Neither role loads the other.
    from duly.maintenance.service import Maintenance
    from duly.scheduler.service import Scheduler
    from duly.worker.service import Worker, WorkerHealth

_REPORT_SECONDS = 1.0
_REPORT_BYTES_MAX = 1024 * 1024


class WorkerFigures:
    """The metrics of one worker process."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._clock = SystemClock()
        self._reading = threading.Lock()

    def collect(self) -> Iterator[Family]:
        """Return every metric."""
        health, figures = self.health(), self._worker.figures
        yield one("duly_worker_runs_claimed_total", figures.claimed)
        yield one("duly_worker_runs_started_total", figures.started)
        yield labelled("duly_worker_runs_ended_total", dict(figures.ended))
        yield one("duly_worker_runs_deferred_total", figures.deferred)
        yield one("duly_worker_outcomes_settled_total", health.settled)
        yield one("duly_worker_outcomes_fenced_total", health.fenced)
        yield one("duly_worker_lives_total", health.lives)
        yield one("duly_worker_runs_running", health.running)
        yield one("duly_worker_runs_waiting", health.waiting)
        yield one("duly_worker_runs_held", health.held)
        yield labelled("duly_worker_slots", self._worker.slots)
        if (age := self.loop_age()) is not None:
            yield one("duly_worker_loop_age_seconds", age)
        for name, seen in (("start_delay", figures.delays), ("claim_duration", figures.claims)):
            yield Family(f"duly_worker_{name}_seconds", histograms=[((), list(seen.counts), seen.total)])
        settles = figures.settles
        yield Family("duly_worker_settle_duration_seconds", histograms=[((), list(settles.counts), settles.total)])
        yield Family(
            "duly_worker_webhook_duration_seconds",
            histograms=[
                ((kind,), list(seen.counts), seen.total) for kind, seen in self._worker.webhook_durations.items()
            ],
        )

    def health(self) -> WorkerHealth:
        """Return the worker's state."""
        with self._reading:  # it adds up what earlier lives have settled, and requests are concurrent
            return self._worker.health

    def loop_age(self) -> float | None:
        """Return how long ago the engine last looked at what is due; None: not yet."""
        return age_of(self._clock, self._worker.figures.ticked_at)


class SchedulerFigures:
    """The metrics of one scheduler process."""

    def __init__(self, scheduler: Scheduler, maintenance: Maintenance) -> None:
        self._scheduler = scheduler
        self._maintenance = maintenance
        self._clock = SystemClock()

    def collect(self) -> Iterator[Family]:
        """Return every metric."""
        health = self._scheduler.health
        yield one("duly_scheduler_runs_staged_total", health.staged)
        yield one("duly_scheduler_runs_backfilled_total", health.backfilled)
        yield one("duly_scheduler_shards_held", health.shards)
        yield one("duly_scheduler_lag_seconds", health.lag_seconds)
        if (age := age_of(self._clock, health.stepped_at)) is not None:
            yield one("duly_scheduler_tick_age_seconds", age)
        yield labelled("duly_scheduler_round_age_seconds", self._maintenance.rounds.ages(self._clock.monotonic()))
        yield Family(
            "duly_scheduler_tick_duration_seconds", histograms=[((), list(health.ticks.counts), health.ticks.total)]
        )


def age_of(clock: SystemClock, then: float | None) -> float | None:
    """Return how long ago something was, on the monotonic clock."""
    return None if then is None else clock.monotonic() - then


# ------------------------------------------------------------------------------------------ the workers of a `duly up`


class Report(msgspec.Struct, frozen=True):
    """The metrics of one process."""

    process: int
    families: list[Family]


def report_for_ever(figures: WorkerFigures, descriptor: int) -> None:
    """Write our metrics to the process that started us, every second, in a thread that ends when nobody reads."""
    os.set_inheritable(descriptor, False)

    def write() -> None:
        pause = threading.Event()
        try:
            while True:
                report = msgspec.json.encode(Report(os.getpid(), list(figures.collect())))
                with_end = memoryview(report + b"\n")
                while with_end:
                    with_end = with_end[os.write(descriptor, with_end) :]
                pause.wait(_REPORT_SECONDS)
        except OSError:
            return

    threading.Thread(target=write, name="figures", daemon=True).start()


class Reports:
    """The last report of one child. A child that was restarted goes on counting where the one before it has ended."""

    def __init__(self) -> None:
        self._reader, self.descriptor = os.pipe()
        self._ended: list[Family] = []
        self._last: Report | None = None

    async def keep_reading(self) -> None:
        """Read reports, for ever. One that is cut off is left out: its process was killed while it wrote."""
        reader = asyncio.StreamReader(_REPORT_BYTES_MAX)
        pipe = os.fdopen(self._reader, "rb")
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        async for line in reader:
            with suppress(msgspec.DecodeError):
                self.take(msgspec.json.decode(line, type=Report))

    def take(self, report: Report) -> None:
        """Take a report."""
        if self._last is not None and self._last.process != report.process:
            self._ended = merged([*self._ended, *(one for one in self._last.families if _is_counted(one))])
        self._last = report

    def families(self) -> list[Family]:
        """Return the metrics of all processes of this child."""
        return [*self._ended, *(self._last.families if self._last is not None else ())]


def _is_counted(family: Family) -> bool:
    return BY_NAME[family.name].kind in ("counter", "histogram")


def of_all(reports: Iterable[Reports]) -> list[Family]:
    """Return the metrics of several children as one."""
    return merged(family for one in reports for family in one.families())
