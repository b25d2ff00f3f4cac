"""The front door in a process of its own, and a worker that knows nothing of us but its address: the example, as it is."""

import asyncio
import os
import runpy
import signal
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from duly.api.app import create
from duly.api.health import Vitals
from duly.api.metrics.collector import Metrics
from duly.api.server.listen import listen
from duly.api.server.server import Server
from duly.bench.chaos.evidence import SINK, Arrival, Sink
from duly.cli.up.dispatcher import opened_dispatcher
from duly.log import Log
from duly.store.connection.database import Database

EXAMPLE = Path(__file__).parents[2] / "examples" / "http_worker.py"
SLOW_SECONDS = 1.5
LOOK_SECONDS = 0.25  # at the figures of metrics


class Pulse(msgspec.Struct):
    """What a scheduler would tell of itself; this process has none."""

    shards: int = 0
    lag_seconds: float = 0.0
    stepped_at: float | None = None


async def run_api(url: str, name: str, port: str) -> None:
    """Answer at a port until told to stop."""
    async with (
        Database(url, size_max=4, command_timeout=2.0, application=name) as database,
        opened_dispatcher(database) as door,
    ):
        vitals = Vitals(database, Pulse(), lambda: None, 1.0, 5.0)
        app = create(vitals, Metrics(vitals.database, Log("metrics"), every=LOOK_SECONDS), Log("api"), door)
        server = Server(app, listen("127.0.0.1", int(port)))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
        await server.run()


async def run_worker(url: str, name: str, address: str, key: str, lease_seconds: str) -> None:
    """Work as the example does, with handlers that leave a line in the sink."""
    example = runpy.run_path(str(EXAMPLE))
    handlers = {"quick": note, "steady": steady, "plain": note, "guarded": note, "slow": slow}
    example["work"](address, key, handlers, slots=10, lease=float(lease_seconds))


def note(run: dict[str, Any]) -> None:
    """Leave a line."""
    moments = (datetime.fromisoformat(run[name]).timestamp() for name in ("scheduled_at", "due_at"))
    Sink(os.environ[SINK]).append(
        Arrival(
            run["run_id"],
            run["job_id"],
            run["attempt"],
            run["fence"],
            time.time(),
            (os.getpid(), os.getppid()),
            *moments,
        )
    )


def steady(run: dict[str, Any]) -> None:
    """Long enough to be under way when its worker dies."""
    note(run)
    time.sleep(0.3)


def slow(run: dict[str, Any]) -> None:
    """Long enough to be found under way."""
    note(run)
    time.sleep(SLOW_SECONDS)
