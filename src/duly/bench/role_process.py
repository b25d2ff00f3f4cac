"""One role in a process of its own: `python -m duly.bench.role_process`, configured by a line on standard input.

It reports its progress on standard output, and ends when standard input does: when it is stopped, or when its parent
has ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from duly import log
from duly.bench.chaos.evidence import SINK
from duly.clock import Rng
from duly.log import Log
from duly.worker import loop

if TYPE_CHECKING:
    from duly.worker.targets import Targets

SCHEDULER_CONNECTIONS_MAX = 8
_STARTING_SECONDS = 0.02


class RoleConfig(msgspec.Struct, frozen=True):
    """The role to run. The handlers' stamps go to the file `stamps` at the end."""

    role: str
    url: str
    name: str
    slots: int = 0
    stamps: str = ""
    report_seconds: float = 0.5
    port: int = 0
    sink_ports: tuple[int, ...] = ()  # of a worker: it sends webhooks there instead of running handlers
    sink: str = ""  # of a worker: a file in which each call of a handler is noted at once
    lease_seconds: float = 0.0  # of a worker; 0: the default


class RoleReport(msgspec.Struct, frozen=True):
    """The progress of a role, at a moment of the monotonic clock that all processes share."""

    ready: bool
    done: int
    at: float


async def work(config: RoleConfig) -> None:
    """Be a worker."""
    if config.sink:
        os.environ[SINK] = config.sink  # Its child processes inherit it.
        from duly.bench.chaos.app import app
    else:
        from duly.bench.app import app
    from duly.bench.app import stamps
    from duly.worker.handlers import Registry
    from duly.worker.service import Worker, WorkerOptions, collect_less_often

    app_path = None if config.sink_ports else f"{'duly.bench.chaos.app' if config.sink else 'duly.bench.app'}:app"
    options = WorkerOptions(name=config.name, slots=config.slots, webhooks=config.slots, app_path=app_path)
    if config.lease_seconds:
        options = msgspec.structs.replace(options, lease=timedelta(seconds=config.lease_seconds))
    registry = Registry() if config.sink_ports else app.registry
    targets = _webhooks_to(config.sink_ports) if config.sink_ports else None
    worker = Worker(config.url, registry, options, rng=Rng(), log=Log("worker"), targets=targets)

    def report() -> RoleReport:
        health = worker.health
        return RoleReport(health.safe, health.settled, monotonic())

    reporting = asyncio.create_task(_keep_reporting(report, config.report_seconds))
    _at_end_of_input(worker.stop)
    collect_less_often()  # As `duly worker` does.
    await worker.run()
    reporting.cancel()
    if config.stamps:
        stamps.write(Path(config.stamps))


def _webhooks_to(ports: Sequence[int]) -> Targets:
    from duly.bench.senders import webhooks_to  # Takes a while to import, and few roles call out.

    return webhooks_to(ports)


async def schedule(config: RoleConfig) -> None:
    """Be a scheduler with maintenance, as the real process is."""
    from duly.maintenance.service import Maintenance
    from duly.scheduler.service import Scheduler
    from duly.store.connection.database import Database

    async with Database(config.url, size_max=SCHEDULER_CONNECTIONS_MAX, application="duly scheduler") as database:
        scheduler = Scheduler(database, name=config.name, rng=Rng(), log=Log("scheduler"))
        maintenance = Maintenance(database, rng=Rng(), log=Log("maintenance"))
        this_loop = asyncio.get_running_loop()

        def stop() -> None:
            this_loop.call_soon_threadsafe(scheduler.stop)
            this_loop.call_soon_threadsafe(maintenance.stop)

        def report() -> RoleReport:
            return RoleReport(scheduler.health.shards > 0, scheduler.health.staged, monotonic())

        reporting = asyncio.create_task(_keep_reporting(report, config.report_seconds))
        _at_end_of_input(stop)
        await asyncio.gather(scheduler.run(), maintenance.run())
        reporting.cancel()


async def serve(config: RoleConfig) -> None:
    """Serve the API."""
    from duly.bench.api_server import opened

    async with opened(config.url, config.port) as server:
        reporting = asyncio.create_task(
            _keep_reporting(lambda: RoleReport(server.started, 0, monotonic()), config.report_seconds)
        )
        _at_end_of_input(server.stop)
        await server.run()
        reporting.cancel()


async def _keep_reporting(look: Callable[[], RoleReport], seconds: float) -> None:
    while True:
        report = look()
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()
        await asyncio.sleep(seconds if report.ready else _STARTING_SECONDS)


def _at_end_of_input(stop: Callable[[], None]) -> None:
    def wait() -> None:
        sys.stdin.buffer.read()
        stop()

    threading.Thread(target=wait, name="input", daemon=True).start()


def main() -> None:
    """Run the role that standard input names."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the process that started us, and thereby us.
    config = msgspec.json.decode(sys.stdin.buffer.readline(), type=RoleConfig)
    log.set_up("warning")
    loop.run({"worker": work, "scheduler": schedule, "api": serve}[config.role](config))


if __name__ == "__main__":
    main()
