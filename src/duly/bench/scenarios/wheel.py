"""`wheel`: what one timer costs in a worker's memory, insert and fire together, among few and among many.

Due moments are spread at random over the horizon; the wheel is advanced from one occupied moment to the next, as the engine
does. `ratio` is the time for each timer among many against that among few, and the baseline is the rate among few. No database
is used.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter

import msgspec

from duly.bench.bench import Bench
from duly.bench.report import Result, rate, share
from duly.moves.stage import HORIZON
from duly.worker.wheel import Wheel


class Options(msgspec.Struct, frozen=True):
    """How many timers are few and many, and how often each is measured."""

    few: int = 1_000
    many: int = 1_000_000
    repeats: int = 3


async def measure(bench: Bench, options: Options) -> Result:
    """Insert and fire, in turns."""
    few: list[float] = []
    many: list[float] = []
    lost = 0
    turns = max(1, options.many // options.few // 10)
    with bench.steps.step("insert and fire", options.repeats) as advance, _as_in_a_worker():
        for number in range(1, options.repeats + 1):
            spans, missing = zip(*(_insert_and_fire(options.few) for _ in range(turns)), strict=True)
            few.append(sum(spans) / turns / options.few)
            span, missing_of_many = _insert_and_fire(options.many)
            many.append(span / options.many)
            lost += sum(missing) + missing_of_many
            advance(number)
    return Result(
        scenario="wheel",
        config=bench.config(options, workers=0, slots=0, horizon_seconds=HORIZON.total_seconds()),
        runs_per_second=rate(1, median(many)),
        baseline_per_second=rate(1, median(few)),
        ratio=share(median(many), median(few)),
        lost=lost,
        more={"few_ns": [round(span * 1e9) for span in few], "many_ns": [round(span * 1e9) for span in many]},
    )


def _insert_and_fire(number: int) -> tuple[float, int]:
    """Insert timers and fire them all. Returns how long it took, and how many did not come out."""
    span = HORIZON.total_seconds()
    dues = [1_700_000_000 + random.random() * span for _ in range(number)]
    wheel: Wheel[float] = Wheel()
    fired = 0
    began = perf_counter()
    for due in dues:
        wheel.insert(due, due)
    while (moment := wheel.next_due()) is not None:
        fired += len(wheel.advance(moment))
    return perf_counter() - began, number - fired


@contextmanager
def _as_in_a_worker() -> Iterator[None]:
    """Keep what is already there out of the collector's sight: it would be counted to whoever triggers it."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
