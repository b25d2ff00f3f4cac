"""`burst`: many runs due at one instant, submitted ahead, so that they are staged and claimed before it.

Skew is by the handlers' own clock, which on a database of this machine is the database's too: one called before its due
moment is early. The rate is from the instant to the last call; the baseline drains as many bare rows. Latency: from due to
finish, as recorded.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from time import time
from typing import Annotated

import msgspec

from duly.bench import audit
from duly.bench.app import STAMPED, one_shot
from duly.bench.bench import Bench, chunks
from duly.bench.report import Result, percentiles, rate
from duly.moves.submit import submit_many
from duly.store.connection.database import Database

_BATCH = 1_000
_SUBMITTED_PER_SECOND = 20_000  # at least; so much longer ahead is the instant
_SETTLE_SECONDS = 60.0


class Options(msgspec.Struct, frozen=True):
    """The number of runs, and how long before the instant they are submitted."""

    runs: Annotated[int, "How many runs."] = 10_000
    ahead_seconds: Annotated[float, "Submitted so long before, at least."] = 8.0


async def measure(bench: Bench, options: Options) -> Result:
    """Start many runs that are due at one instant."""
    async with bench.baseline(options.runs) as baseline, bench.database() as database:
        async with bench.roles(stamped=True, report_seconds=0.1) as roles:
            due_at = await _submit(bench, database, options)
            costs = bench.costs(roles)
            with bench.steps.step("waiting for the instant", due_at.timestamp() - time()) as advance:
                began = time()

                def all_settled() -> bool:
                    advance(min(time(), due_at.timestamp()) - began)
                    return roles.settled >= options.runs

                seconds = due_at.timestamp() - began + _SETTLE_SECONDS
                await roles.until(all_settled, seconds, "settling every run")
            spent = costs.spent()
        stamps = await bench.stamps_by_database()
        verdict = await audit.of_one_shots(database, options.runs, stamps)
        recorded, latency = await audit.recorded(database, due_at, due_at + timedelta(seconds=1))
    return Result(
        runs_per_second=rate(options.runs, max(stamp.skew for stamp in stamps)),
        baseline_per_second=baseline.bare.drain_per_second,
        verdict=verdict,
        latency_ms=latency,
        skew_ms=percentiles(stamp.skew for stamp in stamps),
        more={
            "recorded_skew_ms": recorded,
            "cpu_us_per_run": spent.per_run(options.runs),
            "baseline": baseline.bare,
        },
    )


async def _submit(bench: Bench, database: Database, options: Options) -> datetime:
    """Submit everything for one instant. Returns the instant."""
    ahead = timedelta(seconds=options.ahead_seconds + options.runs / _SUBMITTED_PER_SECOND)
    due_at: datetime = await database.fetchval("select clock_timestamp() + $1", ahead)
    job = one_shot(STAMPED, at=due_at)
    with bench.steps.step(f"{options.runs:,} runs submitted", options.runs) as advance:
        for number, size in enumerate(chunks(options.runs, _BATCH)):
            await submit_many(database, [job] * size, key=f"burst-{number}")
            advance(number * _BATCH)
    return due_at
