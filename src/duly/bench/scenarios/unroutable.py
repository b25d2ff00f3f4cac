"""`unroutable`: what a claim costs with unroutable runs in front of it: before and after they are marked.

The baseline is a claim with none in front; `ratio` is what it costs with them marked against that. Latency: one claim with them
marked. The cost of marking and of restoring is reported for each run, in CPU of the backend that does it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from statistics import median
from time import perf_counter
from typing import Annotated
from uuid import UUID, uuid4

import msgspec

from duly import __version__
from duly.bench import processes
from duly.bench.app import NOOP
from duly.bench.bench import NO_WORKERS, Bench
from duly.bench.fill import fill_ready
from duly.bench.report import Result, milliseconds, percentiles, rate, share
from duly.domain.runs.run import QUEUE_DEFAULT
from duly.moves.claim import claim
from duly.moves.unroutable import UnroutableLimits, mark_unroutable, restore_routable
from duly.store.boxes import leased, ready
from duly.store.connection.database import Database
from duly.store.tables import workers
from duly.store.tables.workers import Identity

_LEASE = timedelta(hours=1)
_UNKNOWN = "bench:nobody_knows"
_SPACING = timedelta(milliseconds=1)


class Options(msgspec.Struct, frozen=True):
    """The number of unroutable runs, the size of a claim, and the number of claims."""

    unroutable: Annotated[int, "Runs that no worker knows."] = 500_000
    limit: Annotated[int, "Size of a claim."] = 100
    claims: Annotated[int, "How many claims."] = 20


class Spent(msgspec.Struct):
    """The cost of some calls: CPU of the backend, and time."""

    cpu: list[float]
    times: list[float]

    @property
    def cpu_ms(self) -> float:
        """The median of their CPU."""
        return milliseconds(median(self.cpu))


async def measure(bench: Bench, options: Options) -> Result:
    """Claim behind runs that no worker knows, while they are in the claim index and after they have left it."""
    processes.check_can_look("unroutable")
    async with bench.database(size_max=1) as database:
        worker_id = await _worker(database, NOOP)
        alone = await _claims(bench, database, worker_id, options, "claims with none in front")
        with bench.steps.step(f"{options.unroutable:,} that no worker knows"):
            await fill_ready(database, options.unroutable, _UNKNOWN, timedelta(hours=1), _SPACING)
            await database.execute(ready.SQL["vacuum"])
        unmarked = await _claims(bench, database, worker_id, options, "claims with them unmarked")
        moved, moving = await _moved(bench, database, "marked", lambda: _mark_unroutable(database))
        marked = await _claims(bench, database, worker_id, options, "claims with them marked")
        knowing = await _worker(database, _UNKNOWN)
        first = await _spent(database, lambda: claim(database, knowing, [QUEUE_DEFAULT], [_UNKNOWN], options.limit))
        back, bringing = await _moved(bench, database, "restored", lambda: restore_routable(database))
    return Result(
        config=NO_WORKERS,
        runs_per_second=rate(options.limit, median(marked.times)),
        baseline_per_second=rate(options.limit, median(alone.times)),
        ratio=share(marked.cpu_ms, alone.cpu_ms),
        latency_ms=percentiles(marked.times),
        more={
            "claim_cpu_ms": {"alone": alone.cpu_ms, "before_marking": unmarked.cpu_ms, "after_marking": marked.cpu_ms},
            "first_claim_cpu_ms": first.cpu_ms,
            "mark_unroutable": moved,
            "mark_cpu_us": round(moving / max(1, moved) * 1e6, 1),
            "restored": back,
            "bring_back_cpu_us": round(bringing / max(1, back) * 1e6, 1),
        },
    )


async def _worker(database: Database, handler: str) -> UUID:
    worker_id = uuid4()
    await workers.register(database, Identity(worker_id, "bench", __version__, [QUEUE_DEFAULT], [handler], 1, _LEASE))
    return worker_id


async def _claims(bench: Bench, database: Database, worker_id: UUID, options: Options, name: str) -> Spent:
    """Claim so many times what the worker knows, behind whatever is there."""
    await fill_ready(database, options.limit * options.claims, NOOP, spacing=_SPACING)
    await database.execute(ready.SQL["vacuum"])
    with bench.steps.step(name):
        calls = [
            await _spent(database, lambda: claim(database, worker_id, [QUEUE_DEFAULT], [NOOP], options.limit))
            for _ in range(options.claims)
        ]
    await database.execute("delete from duly.leased")
    await database.execute(leased.SQL["vacuum"])
    await database.execute(ready.SQL["vacuum"])
    return Spent([call.cpu[0] for call in calls], [call.times[0] for call in calls])


async def _spent(database: Database, work: Callable[[], Awaitable[object]]) -> Spent:
    pid = await database.fetchval("select pg_backend_pid()")
    began, before = perf_counter(), processes.cpu_of(pid)
    await work()
    return Spent([processes.cpu_of(pid) - before], [perf_counter() - began])


async def _moved(bench: Bench, database: Database, name: str, step: Callable[[], Awaitable[int]]) -> tuple[int, float]:
    """Move batches until nothing is left to move. Returns how many runs, and the CPU of it all."""
    pid = await database.fetchval("select pg_backend_pid()")
    total, before = 0, processes.cpu_of(pid)
    with bench.steps.step(name):
        while moved := await step():
            total += moved
    spent = processes.cpu_of(pid) - before
    await database.execute(ready.SQL["vacuum"])
    return total, spent


async def _mark_unroutable(database: Database) -> int:
    return (await mark_unroutable(database, UnroutableLimits()))[0]
