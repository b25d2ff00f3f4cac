"""The scenarios: the same for every system, whatever it is.

`bulk`: submit many jobs into an empty store, in the system's largest documented batches; no workers run.
`one_by_one`: submit jobs one at a time, each durable before the next; then by the synchronous API, where there is one.
`drain`: submit many, then start the workers. From the start of the first handler (the boot of a process does not count) until the
store itself says that none is unfinished.
`pick_up`: workers that are idle; one job at a time. From the call of submit to the start of the handler. The pause between two
changes, so that no rhythm of a system can hide.
`burst`: idle workers; many jobs due at one instant, submitted ahead. From the instant to the start of each handler.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter, time
from typing import Any, NamedTuple, TypeVar

from benchmarks.peers.hits import Hits
from benchmarks.peers.system import System
from benchmarks.peers.workers import working

T = TypeVar("T")
Figures = dict[str, float]
Run = Callable[[Coroutine[Any, Any, T]], T]

_WARM_UP = 50
_PAUSE_SECONDS = (0.005, 0.03)
# Looking takes CPU from the measured system: seldom where only the end counts, often where the next sample waits for it.
_LOOK_SECONDS, _LOOK_OFTEN_SECONDS = 0.005, 0.002


class Sizes(NamedTuple):
    """How many jobs each scenario has."""

    many: int = 100_000
    singles: int = 2_000
    samples: int = 200
    burst: int = 10_000
    ahead_seconds: float = 12.0
    settle_seconds: float = 2.0
    patience_seconds: float = 240.0

    def scaled(self, scale: float) -> Sizes:
        """Return smaller sizes, for a first look."""
        if scale >= 1:
            return self
        many, singles, samples, at_once = (max(10, int(number * scale)) for number in self[:4])
        return Sizes(many, singles, samples, at_once, ahead_seconds=2.0, settle_seconds=0.5, patience_seconds=30.0)


class TooSlow(Exception):
    """Something did not happen within the time a scenario has."""


def bulk(system: System, sizes: Sizes, run: Run[Any]) -> Figures:
    """Submit many jobs in batches."""
    run(system.open())
    run(system.submit_many(10, 0.0))
    began = perf_counter()
    run(system.submit_many(sizes.many, 0.0))
    seconds = perf_counter() - began
    run(system.close())
    return {"per_second": sizes.many / seconds}


def one_by_one(system: System, sizes: Sizes, run: Run[Any]) -> Figures:
    """Submit jobs one at a time, by the asynchronous and by the synchronous API."""

    def each(number: int) -> None:
        run(system.submit_each(number))

    run(system.open())
    figures = {"per_second": _rate(each, sizes.singles)}
    run(system.close())
    if synchronous := system.sync():
        with synchronous as submit:
            figures["sync_per_second"] = _rate(lambda number: _repeat(submit, number), sizes.singles)
    return figures


def _repeat(submit: Callable[[], object], number: int) -> None:
    for _ in range(number):
        submit()


def _rate(submit_each: Callable[[int], None], number: int) -> float:
    submit_each(min(_WARM_UP, number))
    began = perf_counter()
    submit_each(number)
    return number / (perf_counter() - began)


def drain(system: System, sizes: Sizes, run: Run[Any]) -> Figures:
    """Let two workers run many jobs that wait."""
    return run(_drain(system, sizes))  # type: ignore[no-any-return]


async def _drain(system: System, sizes: Sizes) -> Figures:
    number = min(sizes.many, system.drained_max)
    await system.open()
    await system.submit_many(number, 0.0)
    with working(system.commands()) as hits:
        await _until(hits, number, sizes)
        deadline = time() + sizes.patience_seconds
        while await system.unfinished():
            if time() > deadline:
                raise TooSlow("jobs that have run are not finished in the store")
        ended = time()
        started = hits.since({})
    await system.close()
    return {
        "per_second": len(started) / (ended - min(started)),
        "jobs": number,
        "run_twice": len(started) - number,
    }


def pick_up(system: System, sizes: Sizes, run: Run[Any]) -> Figures:
    """Submit jobs one at a time to idle workers."""
    return run(_pick_up(system, sizes))  # type: ignore[no-any-return]


async def _pick_up(system: System, sizes: Sizes) -> Figures:
    await system.open()
    with working(system.commands()) as hits:
        await _warm_up(system, hits, sizes)
        for _ in range(5):
            await _sample(system, hits, sizes)
        seen = hits.seen()
        for _ in range(sizes.samples):
            await _sample(system, hits, sizes)
        delays = hits.since(seen)
    await system.close()
    return percentiles(delays)


async def _sample(system: System, hits: Hits, sizes: Sizes) -> None:
    await asyncio.sleep(random.uniform(*_PAUSE_SECONDS))
    count = hits.count()
    await system.submit_now()
    await _until(hits, count + 1, sizes, _LOOK_OFTEN_SECONDS)


def burst(system: System, sizes: Sizes, run: Run[Any]) -> Figures:
    """Start many jobs that are due at one instant."""
    return run(_burst(system, sizes))  # type: ignore[no-any-return]


async def _burst(system: System, sizes: Sizes) -> Figures:
    await system.open()
    with working(system.commands()) as hits:
        count = await _warm_up(system, hits, sizes)
        seen = hits.seen()
        # A whole second: some systems have no finer unit.
        due = float(math.ceil(time() + sizes.ahead_seconds))
        await system.submit_many(sizes.burst, due, due)
        if time() > due:
            raise TooSlow("the jobs were not submitted before they were due")
        await _until(hits, count + sizes.burst, sizes)
        delays = hits.since(seen)
    await system.close()
    return percentiles(delays) | {"early": sum(delay < 0 for delay in delays)}


async def _warm_up(system: System, hits: Hits, sizes: Sizes) -> int:
    """Submit a few jobs, then let the workers become idle. Returns how many."""
    for number in range(1, 7):
        await system.submit_now()
        await _until(hits, number, sizes)
    await asyncio.sleep(sizes.settle_seconds)
    return hits.count()


async def _until(hits: Hits, number: int, sizes: Sizes, look_seconds: float = _LOOK_SECONDS) -> None:
    """Wait until so many handlers have started. Raises TooSlow."""
    deadline = time() + sizes.patience_seconds
    while (count := hits.count()) < number:
        if time() > deadline:
            raise TooSlow(f"{count} of {number} jobs have started")
        await asyncio.sleep(look_seconds)


def percentiles(delays: Sequence[float]) -> Figures:
    """Sum delays up, in milliseconds."""
    ordered = sorted(delays)
    shares = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "max": 1.0}
    return {name: ordered[math.ceil(share * len(ordered)) - 1] * 1000 for name, share in shares.items()}


SCENARIOS: dict[str, Callable[[System, Sizes, Run[Any]], Figures]] = {
    "bulk": bulk,
    "one_by_one": one_by_one,
    "drain": drain,
    "pick_up": pick_up,
    "burst": burst,
}
