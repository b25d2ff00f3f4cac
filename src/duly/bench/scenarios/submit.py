"""`submit`: how fast jobs become durable: in batches, and one by one.

In batches: `submit_many` on two connections, against bare inserts of as many rows in batches as large. One by one: `submit`,
each in a transaction of its own, against a bare INSERT with its commit; in turns of a hundred, so that both see the same
disk. Latency: one such submit, until it is durable.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from duly.bench import audit, baseline
from duly.bench.app import NOOP
from duly.bench.baseline import CONNECTIONS, Meter
from duly.bench.bench import Bench, chunks
from duly.bench.report import Result, percentiles, rate, share
from duly.domain.jobs.job import Submission
from duly.domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT
from duly.moves.submit import submit, submit_many
from duly.store.connection.database import Database

if TYPE_CHECKING:
    from duly.bench.baseline import Connection

_TURN = 100
_JOB = Submission(NOOP, "{}", QUEUE_DEFAULT, PRIORITY_DEFAULT)


class Options(msgspec.Struct, frozen=True):
    """How much."""

    runs: int = 100_000
    batch: int = 1_000
    singles: int = 2_000


async def measure(bench: Bench, options: Options) -> Result:
    """Submit in batches, then one by one."""
    meter = Meter(bench.place.url, options.runs)
    with bench.steps.step("baseline"):
        await meter.run()
    await bench.place.renew()
    async with bench.place.database() as database:
        seconds = await _in_batches(bench, database, options)
        async with baseline.opened(bench.place.url, 1) as [bare]:
            await bare.execute(baseline.SCHEMA)
            ours, theirs = await _one_by_one(bench, database, bare, options.singles)
        verdict = await audit.of_one_shots(database, options.runs + options.singles)
    with bench.steps.step("baseline again"):
        await meter.run()
    achieved = rate(options.runs, seconds)
    singles, bare_singles = rate(len(ours), sum(ours)), rate(len(theirs), sum(theirs))
    return Result(
        scenario="submit",
        config=bench.config(options, workers=0, slots=0),
        runs_per_second=achieved,
        baseline_per_second=meter.bare.insert_per_second,
        ratio=share(achieved, meter.bare.insert_per_second),
        early=verdict.early,
        lost=verdict.lost,
        duplicates=verdict.duplicates,
        latency_ms=percentiles(ours),
        more={
            "one_by_one": {
                "runs_per_second": singles,
                "baseline_per_second": bare_singles,
                "ratio": share(singles, bare_singles),
                "baseline_ms": percentiles(theirs),
            },
            "baseline": meter.bare,
        },
    )


async def _in_batches(bench: Bench, database: Database, options: Options) -> float:
    batches = list(enumerate(chunks(options.runs, options.batch)))

    async def send() -> None:
        while batches:
            number, size = batches.pop()
            await submit_many(database, [_JOB] * size, key=f"bulk-{number}")

    with bench.steps.step(f"{options.runs:,} in batches"):
        began = perf_counter()
        await asyncio.gather(*(send() for _ in range(CONNECTIONS)))
        return perf_counter() - began


async def _one_by_one(
    bench: Bench, database: Database, bare: Connection, number: int
) -> tuple[list[float], list[float]]:
    ours: list[float] = []
    theirs: list[float] = []
    with bench.steps.step(f"{number:,} one by one", number) as advance:
        for size in chunks(number, _TURN):
            theirs += await baseline.insert_one_by_one(bare, size)
            for _ in range(size):
                began = perf_counter()
                await submit(database, _JOB, key=f"single-{len(ours)}")
                ours.append(perf_counter() - began)
            advance(len(ours))
    return ours, theirs
