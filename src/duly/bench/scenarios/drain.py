"""`drain`: no-op runs, all ready at once, claimed, run and settled into the history by workers that wait for them.

They are submitted in one transaction, so they become visible together; the clock runs from its commit to the last settle.
The baseline claims and records as many bare rows. Latency: from due to finish, as recorded.
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
from duly.domain.job import Submission
from duly.domain.run import PRIORITY_DEFAULT, QUEUE_DEFAULT
from duly.moves.submit import submit_many
from duly.store import hints
from duly.store.database import Database

_TELL_SECONDS = 0.05
_SLOWEST_PER_SECOND = 500


class Options(msgspec.Struct, frozen=True):
    """How much."""

    runs: int = 100_000
    batch: int = 1_000


async def measure(bench: Bench, options: Options) -> Result:
    """Drain once."""
    baseline = Meter(bench.place.url, options.runs)
    with bench.steps.step("baseline"):
        await baseline.run()
    await bench.place.renew()
    async with bench.place.database() as database:
        async with bench.roles(tell_seconds=_TELL_SECONDS) as roles:
            began_at, began = await _submit(bench, database, options)
            costs = bench.costs(roles)
            with bench.steps.step(f"{options.runs:,} runs drained", options.runs) as advance:

                def all_settled() -> bool:
                    advance(roles.settled)
                    return roles.settled >= options.runs

                await roles.until(all_settled, 10 + options.runs / _SLOWEST_PER_SECOND, "settling every run")
            seconds, spent = roles.told_at - began, costs.spent()
        verdict = await audit.of_one_shots(database, options.runs)
        skew, latency = await audit.recorded(database, began_at, datetime.now(UTC))
    with bench.steps.step("baseline again"):
        await baseline.run()
    achieved = rate(options.runs, seconds)
    return Result(
        scenario="drain",
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
    """Submit everything in one transaction. Returns when it began, and the monotonic moment of its commit."""
    began_at: datetime = await database.fetchval("select clock_timestamp()")
    job = Submission(NOOP, "{}", QUEUE_DEFAULT, PRIORITY_DEFAULT)
    with bench.steps.step(f"{options.runs:,} runs submitted", options.runs) as advance:
        async with database.transaction() as connection:
            for number, size in enumerate(chunks(options.runs, options.batch)):
                await submit_many(connection, [job] * size, key=f"drain-{number}")
                advance(number * options.batch)
    committed = monotonic()
    await hints.send(database, [QUEUE_DEFAULT])
    return began_at, committed
