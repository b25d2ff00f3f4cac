"""`moves`: what each move costs PostgreSQL, in CPU of the one backend that does it.

Schedules are staged, claimed and finished in batches, and one-shots are submitted, on a single connection, with nothing else at
work: the sum of stage, claim and finish is what a recurring run costs, whatever else the machine is busy with. The baseline is
the same of bare SQL: insert, claim by delete, COPY into a history. Rates are of one core that does nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Annotated, TypeVar
from uuid import UUID, uuid4

import msgspec

from duly import __version__
from duly.bench import audit, baseline, fill, processes
from duly.bench.app import NOOP, one_shot
from duly.bench.bench import NO_WORKERS, Bench, chunks
from duly.bench.fill import Jobs
from duly.bench.report import Result, percentiles, rate, share
from duly.clock import Rng
from duly.domain.runs.outcome import Succeeded
from duly.domain.runs.run import QUEUE_DEFAULT
from duly.moves.claim import claim
from duly.moves.settle import Settled, settle
from duly.moves.stage import stage
from duly.moves.submit import submit_many
from duly.store.boxes import leased, ready
from duly.store.boxes.timers import Staged
from duly.store.connection.database import Database
from duly.store.tables import shards, workers
from duly.store.tables.workers import Identity

T = TypeVar("T")
_LEASE = timedelta(hours=1)
_STAGE_BATCH_MAX = 10_000
# So many are staged in excess of what is measured: the first calls of a connection plan their statements.
_WARM_UP = 2


class Options(msgspec.Struct, frozen=True):
    """The number of stored jobs, the runs through each move, and the batch size of claim and finish."""

    jobs: Annotated[int, "Stored schedules."] = 200_000
    runs: Annotated[int, "How many go through each move."] = 60_000
    batch: Annotated[int, "Size of a batch."] = 2_000


class Spent(msgspec.Struct):
    """The cost of one move so far."""

    rows: int = 0
    cpu_seconds: float = 0.0
    calls: list[float] = []

    @property
    def microseconds(self) -> float:
        """CPU for each row."""
        return round(self.cpu_seconds / max(1, self.rows) * 1e6, 2)


class Watch:
    """Counts the CPU of one backend, by move."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.spent: dict[str, Spent] = {}

    async def count(self, move: str, work: Awaitable[T], rows: Callable[[T], int]) -> T:
        """Count what is done meanwhile to a move. The first calls are left out."""
        began, before = perf_counter(), processes.cpu_of(self._pid)
        answer = await work
        spent = self.spent.setdefault(move, Spent())
        spent.calls.append(perf_counter() - began)
        if len(spent.calls) > _WARM_UP:
            spent.rows += rows(answer)
            spent.cpu_seconds += processes.cpu_of(self._pid) - before
        return answer

    @property
    def costs(self) -> dict[str, float]:
        """Microseconds for each row, by move; `cycle` is all of them that a recurring run goes through."""
        costs = {move: spent.microseconds for move, spent in self.spent.items()}
        return costs | {"cycle": round(sum(cost for move, cost in costs.items() if move != "submit"), 2)}


async def measure(bench: Bench, options: Options) -> Result:
    """Measure the CPU that each move costs PostgreSQL, with nothing else at work."""
    processes.check_can_look("moves")
    bare = await _bare(bench, options)
    async with bench.database(size_max=1) as database:
        watch = Watch(await database.fetchval("select pg_backend_pid()"))
        await _submit(bench, database, watch, options)
        start = await _fill(bench, database, options)
        await _cycle(bench, database, watch, options, start)
        verdict = await audit.of_schedules(database, start)
    return Result(
        config=NO_WORKERS,
        runs_per_second=rate(1_000_000, watch.costs["cycle"]),
        baseline_per_second=rate(1_000_000, bare["cycle"]),
        ratio=share(bare["cycle"], watch.costs["cycle"]),
        verdict=verdict,
        latency_ms=percentiles(watch.spent["claim"].calls),
        more={"cpu_us_per_row": watch.costs, "baseline_cpu_us_per_row": bare},
    )


async def _submit(bench: Bench, database: Database, watch: Watch, options: Options) -> None:
    job = one_shot(NOOP)
    with bench.steps.step(f"{options.runs:,} submitted", options.runs) as advance:
        for number, size in enumerate(chunks(options.runs, options.batch)):
            await watch.count("submit", submit_many(database, [job] * size, key=f"moves-{number}"), len)
            advance(number * options.batch)
    await database.execute("truncate duly.ready, duly.idempotency_keys")


async def _fill(bench: Bench, database: Database, options: Options) -> datetime:
    """Fill schedules in whose fires all lie within an hour from now, in an order unrelated to their ids."""
    span = timedelta(hours=1)
    jobs = Jobs(options.jobs, NOOP, int(span.total_seconds()), span)
    base = await fill.fill_jobs(database, jobs, bench.steps, span)
    await fill.arm(database, options.jobs, base, bench.steps)
    return base


async def _cycle(bench: Bench, database: Database, watch: Watch, options: Options, base: datetime) -> None:
    """Stage, claim and finish until enough have gone through."""
    scheduler_id, worker_id = uuid4(), uuid4()
    epochs = await shards.lease(database, scheduler_id, "bench", __version__, _LEASE)
    await workers.register(database, Identity(worker_id, "bench", __version__, [QUEUE_DEFAULT], [NOOP], 1, _LEASE))
    done, at_once, rng = 0, min(_STAGE_BATCH_MAX, max(1, options.runs // 5)), Rng(1)
    with bench.steps.step(f"{options.runs:,} staged, claimed, finished", options.runs) as advance:
        while done < options.runs + _WARM_UP * at_once and done < options.jobs:
            done += min(at_once, options.jobs - done)
            # Those due by then are `done` in all; a call takes what is missing of them.
            horizon = base + timedelta(hours=1 + done / options.jobs) - datetime.now(UTC)
            await watch.count("stage", stage(database, scheduler_id, epochs, horizon=horizon), _staged)
            await _claim_and_finish(database, watch, worker_id, rng, options.batch)
            await database.execute(ready.SQL["vacuum"])
            await database.execute(leased.SQL["vacuum"])
            advance(min(done, options.runs))


async def _claim_and_finish(database: Database, watch: Watch, worker_id: UUID, rng: Rng, batch: int) -> None:
    while True:
        claimed = await watch.count("claim", claim(database, worker_id, [QUEUE_DEFAULT], [NOOP], batch), len)
        if not claimed:
            return
        settled = [Settled(run, run.due_at, run.due_at, Succeeded()) for run in claimed]
        await watch.count("finish", settle(database, worker_id, settled, rng), _always(len(claimed)))


def _staged(staged: Staged) -> int:
    return staged.count


def _always(number: int) -> Callable[[object], int]:
    return lambda _: number


async def _bare(bench: Bench, options: Options) -> dict[str, float]:
    """Count the baseline's three statements in the same way."""
    async with baseline.opened(bench.scratch.url, 1) as [connection]:
        await connection.execute(baseline.SCHEMA)
        watch = Watch(connection.get_server_pid())
        with bench.steps.step("baseline"):
            for size in chunks(options.runs, options.batch):
                batch = baseline.batch_of(size)
                await watch.count("insert", connection.execute(baseline.INSERT, *batch), _always(size))
            while True:
                claimed = await watch.count("claim", connection.fetch(baseline.CLAIM, options.batch), len)
                if not claimed:
                    return watch.costs
                await watch.count("copy", baseline.record(connection, claimed), int)
