"""A worker's or a scheduler's own port: its metrics with those of the installation, and its health."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from duly.api.health import LAG_SECONDS_MAX, REAPER_AGE_SECONDS_MAX, STEP_AGE_SECONDS_MAX, Check
from duly.api.metrics.server import RoleServer
from duly.api.server.listen import address_of, listen
from duly.cli.connect import database_url
from duly.cli.flags.settings import span
from duly.cli.render.say import say
from duly.cli.up.figures import SchedulerFigures, WorkerFigures, age_of
from duly.clock import SystemClock
from duly.domain.diagnosis.loops import AGE_SECONDS_MAX, overdue
from duly.log import Log
from duly.settings import Settings
from duly.store.connection.database import Database

if TYPE_CHECKING:  # Neither role loads the other.
    from duly.maintenance.service import Maintenance
    from duly.scheduler.service import Scheduler
    from duly.worker.service import Worker

LOOP_AGE_SECONDS_MAX = 5.0


def worker_served(settings: Settings, worker: Worker) -> AbstractContextManager[None]:
    """Serve the metrics and the health of this worker. Raises PortTaken, WrongSettings."""
    figures = WorkerFigures(worker)

    def checks() -> list[Check]:
        """Return whether this worker can take runs and start them."""
        health = figures.health()
        leased = "its lease is valid" if health.safe else "its lease may have run out, so it takes no runs"
        return [
            Check("registered", health.registered, int(health.registered), None, _registered(health.registered)),
            Check("lease", health.safe, int(health.safe), None, leased),
            _at_most(
                "turn_age_seconds",
                figures.loop_age(),
                LOOP_AGE_SECONDS_MAX,
                "since the engine last looked at what is due",
            ),
        ]

    return _served(settings, "duly worker", figures, checks)


def scheduler_served(
    settings: Settings, scheduler: Scheduler, maintenance: Maintenance
) -> AbstractContextManager[None]:
    """Serve the metrics and the health of this scheduler. Raises PortTaken, WrongSettings."""
    clock = SystemClock()

    def checks() -> list[Check]:
        """Return whether this scheduler stages and maintains. One without a shard is on standby, and healthy."""
        health, now = scheduler.health, clock.monotonic()
        ages = maintenance.rounds.ages(now)
        overdue_loops = ", ".join(overdue(ages))
        says = f"these loops have not ended a round: {overdue_loops}" if overdue_loops else "every loop ends its rounds"
        return [
            _at_most(
                "stage_age_seconds",
                age_of(clock, health.stepped_at),
                STEP_AGE_SECONDS_MAX,
                "since the last staging",
            ),
            _at_most("staging_lag_seconds", health.lag_seconds, LAG_SECONDS_MAX, "behind in staging"),
            _at_most(
                "reaper_age_seconds",
                age_of(clock, maintenance.reaped_at),
                REAPER_AGE_SECONDS_MAX,
                "since the last look for dead workers",
            ),
            Check(
                "round_age_seconds", not overdue_loops, round(max(ages.values(), default=0.0), 3), AGE_SECONDS_MAX, says
            ),
            Check("shards_held", True, health.shards, None, f"it holds {health.shards} shards"),
        ]

    return _served(settings, "duly scheduler", SchedulerFigures(scheduler, maintenance), checks)


@contextmanager
def _served(
    settings: Settings, command: str, figures: WorkerFigures | SchedulerFigures, checks: Callable[[], list[Check]]
) -> Iterator[None]:
    listener = listen_for_metrics(settings, command)
    database = Database(database_url(settings), size_max=1, pooler=settings.pooler, application=f"{command} metrics")
    server = RoleServer(listener, database, figures, checks, span(settings, "queue_age_limit"))
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


def _at_most(name: str, value: float | None, limit: float, what: str) -> Check:
    if value is None:
        return Check(name, False, None, limit, f"has not happened yet: {what}")
    return Check(name, value <= limit, round(value, 3), limit, f"{value:.1f} s {what}, at most {limit:g} s")
