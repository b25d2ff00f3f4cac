"""`drain`: no-op runs, all ready at once, claimed, run and settled into the history by workers that wait for them.

They are submitted in one transaction, so they become visible together; the clock runs from its commit to the last settle.
The baseline claims and records as many bare rows. Latency: from due to finish, as recorded.

With `gated`, so many others stand beside them in a queue that nobody serves, two for each key of one place: what runs without
a key pay for those with one.
"""

from __future__ import annotations

import asyncio
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
from duly.store.connection import hints
from duly.store.connection.database import Database

_TELL_SECONDS = 0.05
_SLOWEST_PER_SECOND = 500
_WAITING = "select count(*) from duly.blocked"


class Options(msgspec.Struct, frozen=True):
    """How much."""

    runs: int = 100_000
    batch: int = 1_000
    gated: int = 0


async def measure(bench: Bench, options: Options) -> Result:
    """Drain once."""
    baseline = Meter(bench.place.url, options.runs)
    with bench.steps.step("baseline"):
        await baseline.run()
    await bench.place.renew()
    async with bench.place.database() as database:
        async with bench.roles(tell_seconds=_TELL_SECONDS) as roles:
            await _stand_beside(bench, database, options)
            began_at, began = await _submit(bench, database, options)
            costs = bench.costs(roles)
            with bench.steps.step(f"{options.runs:,} runs drained", options.runs) as advance:

                def all_settled() -> bool:
                    advance(roles.settled)
                    return roles.settled >= options.runs

                await roles.until(all_settled, 10 + options.runs / _SLOWEST_PER_SECOND, "settling every run")
            seconds, spent = roles.told_at - began, costs.spent()
        verdict = await audit.of_one_shots(database, options.runs + options.gated)
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


async def _stand_beside(bench: Bench, database: Database, options: Options) -> None:
    """Submit runs under keys, if any are asked for, and wait until half of them wait for their place."""
    jobs = [
        Submission(NOOP, "{}", "gated", PRIORITY_DEFAULT, options=options_of(gate=(f"key-{number}", 1)))
        for number in range(options.gated // 2)
    ]
    with bench.steps.step(f"{options.gated:,} runs stand beside them", len(jobs)) as advance:
        for turn in range(2):
            for number, size in enumerate(chunks(len(jobs), options.batch)):
                at = number * options.batch
                async with database.transaction() as connection:
                    await submit_many(connection, jobs[at : at + size], key=f"beside-{turn}-{number}")
        while (waiting := await database.fetchval(_WAITING)) < len(jobs):
            advance(waiting)
            await asyncio.sleep(_TELL_SECONDS)


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
