"""`wheel`: what one timer costs in a worker's memory, insert and fire together, among few and among many.

Due moments are spread at random over the horizon, which is what a worker holds; the wheel is advanced from one occupied moment
to the next, as the engine does. `ratio` is the time for each timer among many against that among few, and the baseline is the
rate among few. `sparse` is the same with so long a span that hardly two timers share a moment, which no worker ever holds: the
worst there is. Time is CPU time; no database is used.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from time import process_time
from typing import Annotated

import msgspec

from duly.bench.bench import Bench
from duly.bench.report import Result, rate, share
from duly.domain.runs.run import HORIZON
from duly.worker.wheel import Wheel

_NOW = 1_800_000_000.0


class Options(msgspec.Struct, frozen=True):
    """The numbers of few and many timers, and how often each is measured."""

    few: Annotated[int, "Timers."] = 1_000
    many: Annotated[int, "Timers."] = 1_000_000
    repeats: Annotated[int, "How often."] = 3


async def measure(bench: Bench, options: Options) -> Result:
    """Insert and fire timers in a worker's memory, among few and among many."""
    horizon = HORIZON.total_seconds()
    few: list[float] = []
    many: list[float] = []
    sparse: list[float] = []
    rounds = max(1, options.many // options.few // 10)
    with bench.steps.step("insert and fire", options.repeats) as advance, _as_in_a_worker():
        for number in range(1, options.repeats + 1):
            few.append(sum(_insert_and_fire(options.few, horizon) for _ in range(rounds)) / rounds)
            many.append(_insert_and_fire(options.many, horizon))
            sparse.append(_insert_and_fire(options.many, options.many / options.few * horizon))
            advance(number)
    return Result(
        config={"horizon_seconds": horizon},
        runs_per_second=rate(1, median(many)),
        baseline_per_second=rate(1, median(few)),
        ratio=share(median(many), median(few)),
        more={
            "few_ns": [round(span * 1e9) for span in few],
            "many_ns": [round(span * 1e9) for span in many],
            "sparse": {
                "ns": [round(span * 1e9) for span in sparse],
                "ratio": share(median(sparse), median(few)),
            },
        },
    )


def _insert_and_fire(number: int, span: float) -> float:
    """Insert timers over a span and fire them all. Returns the seconds for each."""
    dues = [_NOW + random.random() * span for _ in range(number)]
    wheel: Wheel[float] = Wheel()
    fired = 0
    began = process_time()
    for due in dues:
        wheel.insert(due, due)
    while (moment := wheel.next_due()) is not None:
        fired += len(wheel.advance(moment))
    seconds = process_time() - began
    assert fired == number, (fired, number)
    return seconds / number


@contextmanager
def _as_in_a_worker() -> Iterator[None]:
    """Keep what is already there out of the collector's sight: it would be counted to the call that triggers it."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
