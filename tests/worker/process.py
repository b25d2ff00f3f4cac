"""A worker in a process of its own: `python -m tests.worker.process URL LEASE_SECONDS`. SIGTERM ends it in good order."""

import asyncio
import signal
import sys
from datetime import timedelta

from duly.clock import Rng
from duly.log import Log, set_up
from duly.worker.service import Worker, WorkerOptions
from tests.worker.app import PATH, app


async def main(url: str, lease_seconds: float) -> None:
    """Work until told to stop."""
    options = WorkerOptions("process", lease=timedelta(seconds=lease_seconds), grace_seconds=5.0, app_path=PATH)
    worker = Worker(url, app.registry, options, rng=Rng(), log=Log("worker"))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


if __name__ == "__main__":
    set_up("warning")
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
