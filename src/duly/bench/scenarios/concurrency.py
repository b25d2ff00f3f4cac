"""`concurrency`: no-op runs under many concurrency keys with one slot each, all due at once, until the last is settled.

They are submitted in one transaction, so they become visible together, and the clock runs from its commit: so staging
them, starting each when the one before it has ended, claiming, running and settling are all in the figure. The baseline
claims and records as many bare rows. Latency: from due to finish, as recorded.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from duly.bench.bench import Bench
from duly.bench.report import Result
from duly.bench.scenarios.drain import drained, keyed


class Options(msgspec.Struct, frozen=True):
    """The size of the scenario."""

    runs: Annotated[int, "How many runs."] = 60_000
    keys: Annotated[int, "How many concurrency keys of one slot."] = 10_000
    batch: Annotated[int, "How many are submitted at once."] = 1_000


async def measure(bench: Bench, options: Options) -> Result:
    """Run through many concurrency keys with one slot each."""
    jobs = [keyed(number) for number in range(options.keys)]
    return await drained(bench, [jobs[number % options.keys] for number in range(options.runs)], options.batch)
