"""`idle`: what Duly costs when nothing is due, and whether its memory grows with what is stored.

CPU and memory of a real `duly up --no-demo` and all its processes, over a while; PostgreSQL is counted apart. Then a scheduler
and a worker with few stored jobs and with many, of which as many fire in both: `ratio` is their memory among many against that
among few. Memory is resident; what processes share counts in each.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from time import monotonic, time
from typing import Annotated

import msgspec

from duly.bench import audit, fill, processes
from duly.bench.app import NOOP
from duly.bench.bench import Bench
from duly.bench.costs import Meter
from duly.bench.fill import Jobs
from duly.bench.report import Result, Verdict, rate, share
from duly.bench.roles import RoleFailed, environment, free_port
from duly.store.connection.database import Database

_START_SECONDS = 60.0
_CALM_SECONDS = 5.0
_STOP_SECONDS = 20.0
_LOOK_SECONDS = 0.1
_SOON = timedelta(seconds=4)
_FIRING_EVERY_SECONDS = 10
_REST_EVERY_SECONDS = 86_400
_IS_UP = "select exists (select from duly.workers) and exists (select from duly.shards where holder is not null)"


class Options(msgspec.Struct, frozen=True):
    """For how long, and how many jobs are few and many; `firing` of them fire every ten seconds."""

    seconds: Annotated[int, "How long the idle system is watched."] = 30
    few: Annotated[int, "Stored jobs."] = 1_000
    many: Annotated[int, "Stored jobs."] = 1_000_000
    firing: Annotated[int, "How many of them fire every ten seconds."] = 500
    firing_seconds: Annotated[int, "How long those are let fire."] = 20


class Memory(msgspec.Struct, frozen=True):
    """Resident memory with so many jobs stored, and what was done meanwhile."""

    scheduler_mib: float
    worker_mib: float
    settled: int
    verdict: Verdict

    @property
    def mib(self) -> float:
        """The two together."""
        return self.scheduler_mib + self.worker_mib


async def measure(bench: Bench, options: Options) -> Result:
    """Watch a `duly up` with nothing to do, and memory with few and many stored jobs."""
    processes.check_can_look("idle")
    await bench.scratch.renew()
    async with _up(bench) as pid:
        await asyncio.sleep(min(_CALM_SECONDS, options.seconds))
        meter = Meter([pid], bench.scratch.server_pid)
        await _pass(bench, f"{options.seconds} s idle", options.seconds)
        spent, family = meter.spent(), processes.family([pid])
    few = await _memory(bench, options, options.few)
    many = await _memory(bench, options, options.many)
    return Result(
        config={"workers": 1},
        runs_per_second=rate(many.settled, options.firing_seconds),
        baseline_per_second=rate(few.settled, options.firing_seconds),
        ratio=share(many.mib, few.mib),
        verdict=few.verdict + many.verdict,
        more={
            "cpu_percent": spent.percent(),
            "memory_mib": {
                "duly_up": processes.mebibytes(family),
                "few": {"scheduler": few.scheduler_mib, "worker": few.worker_mib},
                "many": {"scheduler": many.scheduler_mib, "worker": many.worker_mib},
            },
            "processes": len(family),
        },
    )


@asynccontextmanager
async def _up(bench: Bench) -> AsyncIterator[int]:
    """Run a real `duly up` with a worker on the scratch database. Returns the number of its first process."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "duly", "up", "--no-demo", "--app", "duly.bench.app:app", "--port", str(free_port())),
        *("--database-url", bench.scratch.url, "--data", str(bench.folder / "up")),
        cwd=bench.folder,
        env=environment(),
        stdin=DEVNULL,
        stdout=DEVNULL,
        start_new_session=True,
    )
    try:
        with bench.steps.step("duly up"):
            await _until_up(bench, process)
        yield process.pid
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()


async def _until_up(bench: Bench, process: asyncio.subprocess.Process) -> None:
    deadline = monotonic() + _START_SECONDS
    async with bench.scratch.database() as database:
        while not await database.fetchval(_IS_UP):
            if process.returncode is not None or monotonic() > deadline:
                raise RoleFailed("`duly up` did not come up; its log is above")
            await asyncio.sleep(_LOOK_SECONDS)


async def _memory(bench: Bench, options: Options, stored: int) -> Memory:
    """Run a scheduler and a worker for a while with so many jobs stored."""
    firing = min(options.firing, stored)
    async with bench.database() as database:
        start = await _fill(bench, database, stored, firing)
        async with bench.roles(workers=1) as roles:
            ahead = max(0.0, start.timestamp() - time())
            await _pass(bench, f"{stored:,} jobs stored", ahead + options.firing_seconds)
            assert roles.scheduler
            scheduler, worker = (
                processes.mebibytes(processes.family([pid])) for pid in (roles.scheduler.pid, roles.workers[0].pid)
            )
            settled = roles.settled
        return Memory(scheduler, worker, settled, await audit.of_schedules(database, start))


async def _fill(bench: Bench, database: Database, stored: int, firing: int) -> datetime:
    """Fill in jobs of which some fire soon and the rest no sooner than tomorrow. Returns the moment of the first fire."""
    began = monotonic()
    if stored > firing:
        rest = Jobs(stored - firing, NOOP, _REST_EVERY_SECONDS, timedelta(seconds=_REST_EVERY_SECONDS))
        await fill.fill_jobs(database, rest, bench.steps, timedelta(days=1))
    some = Jobs(firing, NOOP, _FIRING_EVERY_SECONDS, timedelta(seconds=_FIRING_EVERY_SECONDS))
    await fill.fill_jobs(database, some, bench.steps, name="firing")
    return await fill.arm_ahead(database, stored, _SOON, bench.steps, monotonic() - began)


async def _pass(bench: Bench, what: str, seconds: float) -> None:
    began = monotonic()
    with bench.steps.step(what, seconds) as advance:
        while (passed := monotonic() - began) < seconds:
            advance(passed)
            await asyncio.sleep(_LOOK_SECONDS)
