"""`drain`: no-op runs, all ready at once, claimed, run and settled into the history by workers that wait for them.

They are submitted in one transaction, so they become visible together; the clock runs from its commit to the last
settle. The baseline claims and records as many bare rows. Latency: from due to finish, as recorded.

With `waiting`, so many others wait beside them in a queue that no worker serves, two for each key of one slot: the cost
that runs with a key cause to those without.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from time import monotonic
from typing import Annotated

import msgspec

from duly.bench import audit
from duly.bench.app import NOOP, one_shot
from duly.bench.bench import REPORT_SECONDS, Bench
from duly.bench.report import Result, rate
from duly.domain.jobs.job import Submission
from duly.domain.runs.options import options_of
from duly.domain.runs.run import QUEUE_DEFAULT
from duly.moves.submit import submit_many
from duly.store.connection import hints
from duly.store.connection.database import Database

_SLOWEST_PER_SECOND = 200
_WAITING = "select count(*) from duly.blocked"


class Options(msgspec.Struct, frozen=True):
    """The size of the scenario."""

    runs: Annotated[int, "How many runs."] = 100_000
    batch: Annotated[int, "How many are submitted at once."] = 1_000
    waiting: Annotated[int, "How many others wait beside them, two for each key of one slot."] = 0


async def measure(bench: Bench, options: Options) -> Result:
    """Claim, run and settle no-op runs that are all ready at once."""
    beside = [keyed(number, "waiting") for number in range(options.waiting // 2)]
    return await drained(bench, [one_shot(NOOP)] * options.runs, options.batch, beside)


def keyed(key: int, queue: str = QUEUE_DEFAULT) -> Submission:
    """Return a run under a concurrency key of one slot."""
    return one_shot(NOOP, queue=queue, options=options_of(concurrency=(f"key-{key}", 1)))


async def drained(bench: Bench, jobs: Sequence[Submission], batch: int, beside: Sequence[Submission] = ()) -> Result:
    """Submit `jobs` in one transaction and measure until the last is settled; each of `beside` is submitted twice."""
    number = len(jobs)
    async with bench.baseline(number) as baseline, bench.database() as database:
        async with bench.roles(report_seconds=REPORT_SECONDS) as roles:
            await _submit_blocked(bench, database, beside, batch)
            began_at, began = await _submit(bench, database, jobs, batch)
            costs = bench.costs(roles)
            await bench.settled(roles, number, 20 + number / _SLOWEST_PER_SECOND, f"{number:,} runs drained")
            seconds, spent = roles.reported_at - began, costs.spent()
        verdict = await audit.of_one_shots(database, number + 2 * len(beside))
        skew, latency = await audit.recorded(database, began_at, datetime.now(UTC))
    return Result(
        runs_per_second=rate(number, seconds),
        baseline_per_second=baseline.bare.drain_per_second,
        verdict=verdict,
        latency_ms=latency,
        skew_ms=skew,
        more={"seconds": round(seconds, 3), "cpu_us_per_run": spent.per_run(number), "baseline": baseline.bare},
    )


async def _submit_blocked(bench: Bench, database: Database, jobs: Sequence[Submission], batch: int) -> None:
    """Submit each of `jobs` twice and wait until half of them wait for their slot."""
    with bench.steps.step(f"{2 * len(jobs):,} runs wait beside them", len(jobs)) as advance:
        for batch_number in range(2):
            for at in range(0, len(jobs), batch):
                async with database.transaction() as connection:
                    await submit_many(connection, jobs[at : at + batch], key=f"beside-{batch_number}-{at}")
        while (waiting := await database.fetchval(_WAITING)) < len(jobs):
            advance(waiting)
            await asyncio.sleep(REPORT_SECONDS)


async def _submit(bench: Bench, database: Database, jobs: Sequence[Submission], batch: int) -> tuple[datetime, float]:
    """Submit everything in one transaction. Returns when it began, and the monotonic moment of its commit."""
    began_at: datetime = await database.fetchval("select clock_timestamp()")
    with bench.steps.step(f"{len(jobs):,} runs submitted", len(jobs)) as advance:
        async with database.transaction() as connection:
            for at in range(0, len(jobs), batch):
                await submit_many(connection, jobs[at : at + batch], key=f"drain-{at}")
                advance(at)
    committed = monotonic()
    await hints.send(database, [QUEUE_DEFAULT])
    return began_at, committed
