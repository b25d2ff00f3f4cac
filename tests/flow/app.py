"""Handlers that keep a log of their own, for worker processes that are killed: `python -m tests.flow.app URL`."""

import asyncio
import os
import signal
import sys
import time
from datetime import timedelta

from duly.clock import Rng
from duly.log import Log, set_up
from duly.worker.handlers import Handler, Registry
from duly.worker.service import Worker, WorkerOptions

LEASE_SECONDS = 1.5


async def logged(path: str, seconds: float) -> None:
    """Note the start and the end, one line each, written at once and by nobody but us."""
    note(path, "start")
    await asyncio.sleep(seconds)
    note(path, "end")


def note(path: str, what: str) -> None:
    """Append a line, whole, whoever else does."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{time.time():.6f} {what} {os.getpid()}\n".encode())
    finally:
        os.close(file)


async def main(url: str) -> None:
    """Work until told to stop."""
    registry = Registry()
    registry.add(Handler(logged))
    options = WorkerOptions("flow", slots=20, lease=timedelta(seconds=LEASE_SECONDS), grace_seconds=5.0)
    worker = Worker(url, registry, options, rng=Rng(), log=Log("worker"))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


if __name__ == "__main__":
    set_up("error")
    asyncio.run(main(sys.argv[1]))
