"""`submit`: how fast jobs become durable: in batches, and one by one.

In batches: `submit_many` of the SDK, one batch after the other, against bare inserts of as many rows. One by one: `submit`,
each in a transaction of its own, and `submit_sync` of the SDK, as a plain program calls it, against a bare INSERT with its
commit; in turns of a hundred, so that all see the same disk. Latency: one `submit`, until it is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

import msgspec

from duly.bench import audit, baseline
from duly.bench.app import NOOP, NUMBERED, make_app, one_shot
from duly.bench.bench import NO_WORKERS, Bench, chunks
from duly.bench.report import Result, percentiles, rate, share
from duly.moves.submit import submit
from duly.store.connection.database import Database

if TYPE_CHECKING:
    from duly.bench.baseline import Connection

_BATCH = 100
_JOB = one_shot(NOOP)


class Options(msgspec.Struct, frozen=True):
    """The size of the scenario."""

    runs: Annotated[int, "In batches."] = 200_000
    batch: Annotated[int, "Size of a batch."] = 5_000
    singles: Annotated[int, "One by one."] = 2_000


async def measure(bench: Bench, options: Options) -> Result:
    """Submit jobs durably: in batches, and one by one."""
    async with bench.baseline(options.runs) as meter, bench.database() as database:
        seconds = await _in_batches(bench, options)
        async with baseline.opened(bench.scratch.url, 1) as [bare]:
            await bare.execute(baseline.SCHEMA)
            ours, sync, theirs = await _one_by_one(bench, database, bare, options.singles)
        verdict = await audit.of_one_shots(database, options.runs + 1 + 2 * options.singles)
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
            "one_by_one_sync": {
                "runs_per_second": rate(len(sync), sum(sync)),
                "ratio": share(rate(len(sync), sum(sync)), bare_singles),
                "latency_ms": percentiles(sync),
            },
            "baseline": meter.bare,
        },
    )


async def _in_batches(bench: Bench, options: Options) -> float:
    async with make_app(bench.scratch.url) as app:
        handler = app[NUMBERED]
        await handler.submit_many([{"number": 0}])  # connects
        with bench.steps.step(f"{options.runs:,} in batches"):
            began = perf_counter()
            for size in chunks(options.runs - 1, options.batch):
                await handler.submit_many([{"number": number} for number in range(size)])
            return perf_counter() - began


async def _one_by_one(
    bench: Bench, database: Database, bare: Connection, number: int
) -> tuple[list[float], list[float], list[float]]:
    ours: list[float] = []
    sync: list[float] = []
    theirs: list[float] = []
    app = make_app(bench.scratch.url)
    handler = app[NOOP]
    await asyncio.to_thread(handler.submit_sync)  # connects
    with bench.steps.step(f"{number:,} one by one", number) as advance:
        for size in chunks(number, _BATCH):
            theirs += await baseline.insert_one_by_one(bare, size)
            for _ in range(size):
                began = perf_counter()
                await submit(database, _JOB, key=f"single-{len(ours)}")
                ours.append(perf_counter() - began)
            sync += await asyncio.to_thread(_each, handler.submit_sync, size)
            advance(len(ours))
    await app.close()
    return ours, sync, theirs


def _each(submit_sync: Callable[[], object], number: int) -> list[float]:
    """Submit as a plain program does: on a thread without a running loop."""
    spans = []
    for _ in range(number):
        began = perf_counter()
        submit_sync()
        spans.append(perf_counter() - began)
    return spans
