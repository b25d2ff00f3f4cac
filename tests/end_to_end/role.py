"""One part of Duly in a process of its own: `python -m tests.end_to_end.role ROLE URL NAME …`."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from duly.cli.up.scheduler import CONNECTIONS_MAX
from duly.clock import Rng
from duly.domain.errors import DatabaseUnusable
from duly.log import Log, set_up
from duly.maintenance.service import Maintenance
from duly.scheduler.service import Scheduler
from duly.store.connection.database import Database
from duly.worker.service import Worker, WorkerOptions
from tests.end_to_end import client
from tests.end_to_end.app import PATH, app

THREADS = 8  # As many child processes, too: for what a worker that died had under way, they are to be enough.


async def run_scheduler(url: str, name: str) -> None:
    """Schedule and keep house until told to stop."""
    async with Database(url, size_max=CONNECTIONS_MAX) as database:
        rng = Rng()
        scheduler = Scheduler(database, name=name, rng=rng, log=Log("scheduler"))
        maintenance = Maintenance(database, rng=rng, log=Log("maintenance"))

        def stop() -> None:
            scheduler.stop()
            maintenance.stop()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        await asyncio.gather(scheduler.run(), maintenance.run())


async def run_worker(url: str, name: str, lease_seconds: str, slots: str) -> None:
    """Work until told to stop."""
    lease = timedelta(seconds=float(lease_seconds))
    options = WorkerOptions(name, slots=int(slots), threads=THREADS, lease=lease, grace_seconds=5.0, app_path=PATH)
    worker = Worker(url, app.registry, options, rng=Rng(), log=Log("worker"))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


async def run_client(url: str, name: str, ledger: str, runs: str, seconds: str, *schedules: str) -> None:
    """Submit a load, and keep account of what was acknowledged."""
    await client.submit_load(url, name, Path(ledger), int(runs), float(seconds), *map(int, schedules))


async def run_over_http(role: str, *args: str) -> None:
    """Play a role that speaks HTTP; only who does loads what it takes, which is as much as all the rest."""
    from tests.end_to_end import http

    await (http.run_api if role == "api" else http.run_worker)(*args)


ROLES: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {
    "scheduler": run_scheduler,
    "worker": run_worker,
    "client": run_client,
    "api": partial(run_over_http, "api"),
    "http_worker": partial(run_over_http, "http_worker"),
}


async def main(role: str, *args: str) -> None:
    """Play a role; as under any supervisor, one that found no database is started again."""
    while True:
        try:
            await ROLES[role](*args)
        except DatabaseUnusable:
            await asyncio.sleep(0.2)
        else:
            return


if __name__ == "__main__":
    set_up("warning")
    asyncio.run(main(*sys.argv[1:]))
