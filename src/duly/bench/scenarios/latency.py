"""`latency`: from the call of `submit` to the call of the handler, one at a time, on a system with nothing else to do.

Each sample goes through the SDK as an application would use it: `submit`, and then as often `submit_sync`. Between samples
the system is idle for a moment of changing length, so that no rhythm of its own can hide. The baseline is a bare INSERT and
NOTIFY, with a listener that claims the row by deleting it.
"""

from __future__ import annotations

import asyncio
import random
from time import time
from typing import Annotated

import msgspec

from duly.bench import audit, baseline
from duly.bench.app import STAMPED, make_app
from duly.bench.bench import Bench
from duly.bench.report import Result, percentiles, rate

_SETTLE_SECONDS = 10.0


class Options(msgspec.Struct, frozen=True):
    """The size of the scenario; the pause between two samples is between half and one and a half of `pause_ms`."""

    samples: Annotated[int, "How many, each way."] = 500
    pause_ms: Annotated[int, "Mean pause between two samples."] = 30


async def measure(bench: Bench, options: Options) -> Result:
    """From submit to start, one at a time, on an idle system."""

    async def pause() -> None:
        await asyncio.sleep(options.pause_ms / 1000 * random.uniform(0.5, 1.5))

    with bench.steps.step("baseline"):
        bare = await baseline.round_trips(bench.scratch.url, options.samples, pause)
    await bench.scratch.renew()
    sent: dict[bytes, float] = {}
    sync: set[bytes] = set()
    async with make_app(bench.scratch.url) as client, bench.roles(stamped=True) as roles:
        handler = client[STAMPED]
        with bench.steps.step(f"{options.samples:,} samples", options.samples) as advance:
            for _ in range(options.samples):
                called = time()
                handle = await handler.submit()
                sent[handle.run_id.bytes] = called
                advance(len(sent))
                await pause()
        with bench.steps.step(f"{options.samples:,} from a plain function", options.samples) as advance:
            for _ in range(options.samples):
                called, handle = await asyncio.to_thread(lambda: (time(), handler.submit_sync()))
                sent[handle.run_id.bytes] = called
                sync.add(handle.run_id.bytes)
                advance(len(sync))
                await pause()
        client.background.close()
        await roles.until(lambda: roles.settled >= 2 * options.samples, _SETTLE_SECONDS, "settling the last sample")
    async with bench.scratch.database() as database:
        stamps = bench.stamps()
        verdict = await audit.of_one_shots(database, 2 * options.samples, stamps)
    spans = [stamp.started - sent[stamp.run_id] for stamp in stamps if stamp.run_id not in sync]
    sync_spans = [stamp.started - sent[stamp.run_id] for stamp in stamps if stamp.run_id in sync]
    return Result(
        runs_per_second=rate(len(spans), sum(spans)),
        baseline_per_second=rate(len(bare), sum(bare)),
        verdict=verdict,
        latency_ms=percentiles(spans),
        skew_ms=percentiles(stamp.skew for stamp in stamps),
        more={"sync_ms": percentiles(sync_spans), "baseline_ms": percentiles(bare)},
    )
