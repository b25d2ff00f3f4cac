"""`tick`: what one call of stage costs with the same number of timers due, among few stored timers and among many.

The cost has to follow the rows that are due, never the rows that exist: `ratio` is the time among many against the time among
few, and the baseline is the rate among few. Each call fires a thousand schedules and arms their next fires. Latency: one call
among many. `cpu_ratio` is the same of the CPU of the backend that does it, which a busy machine does not blur.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from statistics import median
from time import perf_counter
from typing import Annotated
from uuid import uuid4

import msgspec

from duly import __version__
from duly.bench import fill, processes
from duly.bench.app import NOOP
from duly.bench.bench import NO_WORKERS, Bench
from duly.bench.fill import Jobs
from duly.bench.report import Result, milliseconds, percentiles, rate, share
from duly.domain.errors import Refused
from duly.moves.stage import stage
from duly.store.connection.database import Database
from duly.store.tables import shards

# All fires lie this far ahead, as many as are due at a call within each such span; the horizon of a call ends with a span.
_AHEAD = timedelta(hours=1)
_SPACING = timedelta(seconds=100)
_LEASE = timedelta(hours=1)
_EVERY_SECONDS = 100_000_000


class Options(msgspec.Struct, frozen=True):
    """The number of stored timers, of those due at each call, and of calls."""

    few: Annotated[int, "Stored timers."] = 10_000
    many: Annotated[int, "Stored timers."] = 1_000_000
    due: Annotated[int, "Due at each call."] = 1_000
    calls: Annotated[int, "How many calls."] = 9


async def measure(bench: Bench, options: Options) -> Result:
    """Stage the same number of due timers among few stored ones and among many."""
    if options.calls * options.due > options.few:
        raise Refused(f"{options.calls} calls of {options.due} due need more than {options.few} stored timers")
    before, cpu_before = await _calls(bench, options, options.few)
    many, cpu_many = await _calls(bench, options, options.many)
    after, cpu_after = await _calls(bench, options, options.few)
    # On both sides, because a machine is not the same a minute later.
    few, cpu_few = before + after, cpu_before + cpu_after
    return Result(
        config=NO_WORKERS,
        runs_per_second=rate(options.due, median(many)),
        baseline_per_second=rate(options.due, median(few)),
        ratio=share(median(many), median(few)),
        latency_ms=percentiles(many),
        more={
            "cpu_ratio": share(median(cpu_many), median(cpu_few)),
            "few_ms": [milliseconds(span) for span in few],
            "many_ms": [milliseconds(span) for span in many],
        },
    )


async def _calls(bench: Bench, options: Options, stored: int) -> tuple[list[float], list[float]]:
    """Measure the calls. Returns how long each took, and how much CPU of PostgreSQL, if it can be read."""
    async with bench.database(size_max=1) as database:
        jobs = Jobs(stored, NOOP, _EVERY_SECONDS, _SPACING * (stored / options.due))
        base = await fill.fill_jobs(database, jobs, bench.steps, _AHEAD)
        await fill.arm(database, stored, base, bench.steps)
        scheduler_id = uuid4()
        epochs = await shards.lease(database, scheduler_id, "bench", __version__, _LEASE)
        backend = await database.fetchval("select pg_backend_pid()") if bench.scratch.server_pid else None
        spans, cpu = [], []
        with bench.steps.step(f"{options.calls} calls among {stored:,}", options.calls) as advance:
            for number in range(1, options.calls + 1):
                horizon = base + _AHEAD + _SPACING * (number - 0.5 / options.due) - await _now(database)
                began, spent = perf_counter(), processes.cpu_of(backend)
                staged = await stage(database, scheduler_id, epochs, horizon=horizon)
                spans.append(perf_counter() - began)
                cpu.append(processes.cpu_of(backend) - spent)
                assert staged.count == options.due, staged
                await database.execute("truncate duly.ready")
                advance(number)
        return spans, cpu


async def _now(database: Database) -> datetime:
    now: datetime = await database.fetchval("select clock_timestamp()")
    return now
