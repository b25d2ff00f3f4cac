"""The heartbeat, in a small process of its own: a handler that holds the interpreter's lock must not stop it.

It renews the lease and tells the worker until when, on the monotonic clock both share, it is safe to start a run: two
thirds of the lease after the last good heartbeat was *sent*; and up to which due moment the store counts its runs as
started. It ends with the worker's process, and falls silent while that process is stopped: a frozen worker must lose
its lease. Run as `python -m duly.worker.heartbeat.process`, configured over standard input.

While the engine does not tick, because a handler holds the interpreter, it allows no start any more. Once the last
moment that it had allowed has passed, it hands back every run that has not started (`shared_state.py`), and says so when the
engine ticks again. Started runs keep their lease.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from duly.clock import Rng
from duly.worker.heartbeat.shared_state import SharedState
from duly.worker.heartbeat.stall import LOOK_RUNNING_SECONDS, LOOK_SECONDS, Stall
from duly.worker.pacing import retry_delay

SAFE_SHARE = 2 / 3
HEARTBEATS_PER_LEASE = 5
TIMEOUT_SHARE = 1 / 3
_STOPPED_SECONDS = 0.3


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped by a signal or a debugger, where the system reports it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status[status.rindex(")") + 2] in "Tt"


async def renew_for_ever(config: dict[str, Any], parent: int) -> None:
    """Send heartbeats until the lease is lost, or the worker has ended: its forks may keep our standard input open."""
    from duly.store.connection.hosts import Hosts, let_server_ask

    hosts = Hosts(config["url"])
    connection: Any = None
    rng = Rng(config["seed"])
    shared_state = SharedState(config["shared_state"])
    stall = Stall(shared_state, config["lease"], parent)
    while os.getppid() == parent:
        if is_stopped(parent):
            stall.excuse()
            await asyncio.sleep(_STOPPED_SECONDS)
            continue
        sent = time.monotonic()
        report = stall.look(sent)
        try:
            if connection is None:
                connection = await hosts.connect(timeout=5.0, statement_cache_size=0)
                if not config["pooler"]:
                    await let_server_ask(connection)
            statement, arguments = (
                (config["statement"], ()) if report is None else (config["stalled"], report.arguments)
            )
            row = await connection.fetchrow(
                statement, config["worker_id"], *arguments, timeout=config["lease"] * TIMEOUT_SHARE
            )
        except Exception as error:  # noqa: BLE001 - whatever happened, the answer is to try again
            say({"error": f"{type(error).__name__}: {error}"})
            if connection is not None:
                connection.terminate()
            connection = None
            await asyncio.sleep(retry_delay(rng))
            continue
        if row is None:
            say({"lost": True})
            return
        safe_until = sent + config["lease"] * SAFE_SHARE
        shared_state.renew(safe_until)
        if report is None or report.is_safe:
            if stall.kept is not None:  # before it may start anything
                say({"kept": [[str(run_id), fence] for run_id, fence in stall.kept]})
            say({"safe_until": safe_until, "due_until": row["safe_until"].timestamp()})
            stall.resume(safe_until, row["safe_until"])
        else:
            stall.reported(report, row["safe_until"], row["returned"])
        await _rest(stall, config["lease"] / HEARTBEATS_PER_LEASE)


async def _rest(stall: Stall, seconds: float) -> None:
    """Wait for the next heartbeat, at most until the engine stops or goes on, or something can be handed back."""
    until = time.monotonic() + seconds
    while True:
        now = time.monotonic()
        if now >= until or stall.wants_heartbeat(now):
            return
        await asyncio.sleep(min(until - now, LOOK_SECONDS if stall.is_stalled else LOOK_RUNNING_SECONDS))


def say(message: dict[str, Any]) -> None:
    """Send a message to the worker."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


async def main() -> None:
    """Send heartbeats while the worker's end of standard input is open."""
    parent = os.getppid()
    config = json.loads(sys.stdin.readline())
    renewing = asyncio.create_task(renew_for_ever(config, parent))
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await asyncio.wait({renewing, asyncio.ensure_future(ended)}, return_when=asyncio.FIRST_COMPLETED)
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C ends the worker, and the worker ends us
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    asyncio.run(main())
