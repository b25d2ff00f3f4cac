"""`gates`: no-op runs under many concurrency keys with one place each, all due at once, until the last is settled.

They are submitted in one transaction, so they become visible together, and the clock runs from its commit: so staging them,
letting each in when the one before it has left, claiming, running and settling are all in the figure. The baseline claims and
records as many bare rows. Latency: from due to finish, as recorded.
"""

from __future__ import annotations

from datetime import UTC, datetime
from time import monotonic

import msgspec

from duly.bench import audit
from duly.bench.app import NOOP
from duly.bench.baseline import Meter
from duly.bench.bench import Bench, chunks
from duly.bench.report import Result, rate, share
from duly.domain.jobs.job import Submission
from duly.domain.runs.options import options_of
from duly.domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT
from duly.moves.submit import submit_many
from duly.store.connection.database import Database

_TELL_SECONDS = 0.05
_SLOWEST_PER_SECOND = 200


class Options(msgspec.Struct, frozen=True):
    """How much."""

    runs: int = 60_000
    keys: int = 10_000
    batch: int = 1_000


async def measure(bench: Bench, options: Options) -> Result:
    """Let everything through once."""
    baseline = Meter(bench.place.url, options.runs)
    with bench.steps.step("baseline"):
        await baseline.run()
    await bench.place.renew()
    async with bench.place.database() as database:
        async with bench.roles(tell_seconds=_TELL_SECONDS) as roles:
            began_at, began = await _submit(bench, database, options)
            costs = bench.costs(roles)
            with bench.steps.step(f"{options.runs:,} runs under {options.keys:,} keys", options.runs) as advance:

                def all_settled() -> bool:
                    advance(roles.settled)
                    return roles.settled >= options.runs

                await roles.until(all_settled, 20 + options.runs / _SLOWEST_PER_SECOND, "settling every run")
            seconds, spent = roles.told_at - began, costs.spent()
        verdict = await audit.of_one_shots(database, options.runs)
        skew, latency = await audit.recorded(database, began_at, datetime.now(UTC))
    with bench.steps.step("baseline again"):
        await baseline.run()
    achieved = rate(options.runs, seconds)
    return Result(
        scenario="gates",
        config=bench.config(options),
        runs_per_second=achieved,
        baseline_per_second=baseline.bare.drain_per_second,
        ratio=share(achieved, baseline.bare.drain_per_second),
        early=verdict.early,
        lost=verdict.lost,
        duplicates=verdict.duplicates,
        latency_ms=latency,
        skew_ms=skew,
        more={"seconds": round(seconds, 3), "cpu_us_per_run": spent.per_run(options.runs), "baseline": baseline.bare},
    )


async def _submit(bench: Bench, database: Database, options: Options) -> tuple[datetime, float]:
    """Submit everything in one transaction, key after key. Returns when it began, and the monotonic moment of its commit."""
    began_at: datetime = await database.fetchval("select clock_timestamp()")
    jobs = [_job(number) for number in range(options.keys)]
    with bench.steps.step(f"{options.runs:,} runs submitted", options.runs) as advance:
        async with database.transaction() as connection:
            done = 0
            for number, size in enumerate(chunks(options.runs, options.batch)):
                batch = [jobs[place % options.keys] for place in range(done, done + size)]
                await submit_many(connection, batch, key=f"gates-{number}")
                done += size
                advance(done)
    return began_at, monotonic()


def _job(number: int) -> Submission:
    options = options_of(gate=(f"key-{number}", 1))
    return Submission(NOOP, "{}", QUEUE_DEFAULT, PRIORITY_DEFAULT, options=options)
