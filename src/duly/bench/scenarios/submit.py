"""`submit`: how fast jobs become durable: in batches, and one by one.

In batches: `submit_many` on two connections, against bare inserts of as many rows in batches as large. One by one: `submit`,
each in a transaction of its own, against a bare INSERT with its commit; in turns of a hundred, so that both see the same
disk. Latency: one such submit, until it is durable.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import msgspec

from duly.bench import audit, baseline
from duly.bench.app import NOOP, one_shot
from duly.bench.baseline import CONNECTIONS
from duly.bench.bench import NO_WORKERS, Bench, chunks
from duly.bench.report import Result, percentiles, rate, share
from duly.moves.submit import submit, submit_many
from duly.store.connection.database import Database

if TYPE_CHECKING:
    from duly.bench.baseline import Connection

_BATCH = 100
_JOB = one_shot(NOOP)


class Options(msgspec.Struct, frozen=True):
    """The size of the scenario."""

    runs: Annotated[int, "In batches."] = 100_000
    batch: Annotated[int, "Size of a batch."] = 1_000
    singles: Annotated[int, "One by one."] = 2_000


async def measure(bench: Bench, options: Options) -> Result:
    """Submit jobs durably: in batches, and one by one."""
    async with bench.baseline(options.runs) as meter, bench.database() as database:
        seconds = await _in_batches(bench, database, options)
        async with baseline.opened(bench.scratch.url, 1) as [bare]:
            await bare.execute(baseline.SCHEMA)
            ours, theirs = await _one_by_one(bench, database, bare, options.singles)
        verdict = await audit.of_one_shots(database, options.runs + options.singles)
    singles, bare_singles = rate(len(ours), sum(ours)), rate(len(theirs), sum(theirs))
    return Result(
        config=NO_WORKERS,
        runs_per_second=rate(options.runs, seconds),
        baseline_per_second=meter.bare.insert_per_second,
        verdict=verdict,
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
        for size in chunks(number, _BATCH):
            theirs += await baseline.insert_one_by_one(bare, size)
            for _ in range(size):
                began = perf_counter()
                await submit(database, _JOB, key=f"single-{len(ours)}")
                ours.append(perf_counter() - began)
            advance(len(ours))
    return ours, theirs
