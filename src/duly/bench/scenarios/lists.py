"""`lists`: how long a page of a list takes, at any depth and with any filter, with much of everything stored.

A large tenant has the jobs, a history, a backlog in every box and dead letters; a small one has a hundred of each, in between.
Pages of 50 are read at the beginning, in the middle and at the end, with each filter, and for the small tenant. Latency: of all
pages together; `slowest_p99_ms` is of the worst list, and `slowest_cpu_ms` the CPU that PostgreSQL spent on the dearest page,
which a busy machine does not blur. The baseline is reading as many rows of one table by its key.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import datetime
from random import Random
from time import perf_counter
from typing import Annotated
from uuid import UUID

import msgspec

from duly.bench import processes
from duly.bench.bench import NO_WORKERS, Bench
from duly.bench.report import Percentiles, Result, percentiles, rate, share
from duly.domain.jobs import filter as filters
from duly.domain.jobs.filter import Field, Filter
from duly.store.connection.database import Database
from duly.store.reads import lists
from duly.store.reads.lists import DeadAt

PAGE = 50
_LARGE, _SMALL = 1, 2
_CHUNK = 50_000
_DAYS = 30
# Every so many rows belong to the small tenant.
_JOBS = """
insert into duly.jobs (job_id, tenant, name, state, queue, handler, every_seconds, anchor_at, payload, options,
                       created_at, updated_at)
select duly.run_id(at, 'lists/' || number), case when number % $3 = 0 then 2 else 1 end, 'report-' || number,
       case when number % 1000 = 7 then 'paused' else 'active' end, 'queue-' || number % 20, 'handler-' || number % 200,
       3600, at, '{}',
       jsonb_build_object('tags', case when number % 500 = 3 then '["rare", "all"]' when number % 2 = 0 then '["even", "all"]'
                                       else '["all"]' end::jsonb), at, at
  from (select number, clock_timestamp() - interval '1 second' * ($4 - number) as at
          from generate_series($1::bigint, $2::bigint) as number) as made
"""
_FIRES = """
insert into duly.timers (job_id, scheduled_at, due_at, generation, tenant, queue, handler, shard, every_seconds)
select job_id, at, case when state = 'paused' then 'infinity' else at end, 1, tenant, queue, handler,
       duly.shard_of(job_id), 3600
  from (select *, clock_timestamp() + interval '1 hour' + interval '1 second' * (random() * 3600) as at
          from duly.jobs) as made
"""
_ATTEMPTS = """
insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt,
                           outcome, became, queue, handler)
select run_id, case when number % 3 = 0 then $5::uuid else run_id end, at, at, at, at, number,
       case when number % $3 = 0 then 2 else 1 end, 1,
       case when number % 10 = 1 then 'failed' when number % 100 = 2 then 'cancelled' else 'succeeded' end::duly.outcome,
       case when number % 10 = 1 then 'retrying' when number % 100 = 2 then 'cancelled' else 'succeeded' end::duly.state,
       'queue-' || number % 20, 'handler-' || number % 200
  from (select number, at, duly.run_id(at, 'lists/' || number) as run_id
          from (select number, clock_timestamp() - interval '25 days' * (1 - number::double precision / $4) as at
                  from generate_series($1::bigint, $2::bigint) as number) as moments) as made
"""
_WAITING = """
insert into duly.timers (run_id, job_id, scheduled_at, due_at, generation, tenant, queue, handler, shard)
select run_id, run_id, at, at, 1, case when number % $2 = 0 then 2 else 1 end, 'queue-' || number % 20,
       'handler-' || number % 200, number % 64
  from (select number, at, duly.run_id(at, 'later/' || number) as run_id
          from (select number, clock_timestamp() + interval '1 day' + interval '1 second' * number as at
                  from generate_series(1, $1::integer) as number) as moments) as made
"""
_READY = """
insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                        payload_stored, queue, handler)
select run_id, run_id, at, at, 1, case when number % $2 = 0 then 2 else 1 end, 0, 5, 0, false, false,
       'queue-' || number % 20, 'handler-' || number % 200
  from (select number, at, duly.run_id(at, 'ready/' || number) as run_id
          from (select number, clock_timestamp() - interval '1 millisecond' * number as at
                  from generate_series(1, $1::integer) as number) as moments) as made
"""
_DEAD = """
insert into duly.dead (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,
                       payload_stored, queue, handler, buried_at, reason)
select run_id, run_id, at, at, 1, case when number % $2 = 0 then 2 else 1 end, 5, 5, 0, false, false,
       'queue-' || number % 20, 'handler-' || number % 200, at, 'broken ' || number % 1000
  from (select number, at, duly.run_id(at, 'dead/' || number) as run_id
          from (select number, clock_timestamp() - interval '1 second' * number as at
                  from generate_series(1, $1::integer) as number) as moments) as made
"""
_PARTITIONS = (
    "select duly.create_partitions((clock_timestamp() at time zone 'UTC')::date - $1::integer, $1::integer + 2)"
)
_BASELINE = "select * from duly.jobs where job_id < $1 order by job_id desc limit 50"

JOB_FILTERS = (
    "",
    "state:active",
    "state:paused",
    "queue:queue-7",
    "queue:(queue-7,queue-8)",
    "handler:handler-133",
    "name:report-77777",
    "name:report-7777*",
    "name:report-*",
    "tag:rare",
    "tag:even AND tag:rare",
    "queue:queue-3 AND handler:handler-4",
    'created_at<"2020-01-01"',
    'next_run_at<"2020-01-01"',
)
RUN_FILTERS = (
    "",
    "state:succeeded",
    "state:cancelled",
    "state:scheduled",
    "state:ready",
    "state:running",
    "state:dead",
    "queue:queue-7",
    "handler:handler-133",
    "job_id:{job}",
    "job_id:{job} AND state:cancelled",
    'scheduled_at<"2020-01-01"',
    "tag:none",
)
DEAD_FILTERS = ("", "queue:queue-7", "reason:broken*", 'reason:"broken 77"', "handler:none", 'buried_at<"2020-01-01"')


class Options(msgspec.Struct, frozen=True):
    """The amount stored, and the number of pages of each list to read."""

    jobs: Annotated[int, "Stored schedules."] = 1_000_000
    attempts: Annotated[int, "Stored attempts."] = 3_000_000
    waiting: Annotated[int, "Stored in each box."] = 200_000
    pages: Annotated[int, "How many pages of each list are read."] = 30


class _Kind(msgspec.Struct, frozen=True):
    """A list: its filters and their fields, how it is read, and the table and key that tell how deep a position is."""

    filters: tuple[str, ...]
    fields: Mapping[str, Field]
    read: Callable[..., Awaitable[object]]
    table: str
    key: str


_KINDS = {
    "jobs": _Kind(JOB_FILTERS, filters.JOBS, lists.jobs, "jobs", "job_id"),
    "runs": _Kind(RUN_FILTERS, filters.RUNS, lists.runs, "attempts_succeeded", "run_id"),
    "dead": _Kind(DEAD_FILTERS, filters.DEAD, lists.dead, "dead", "run_id"),
}


class _Measured(msgspec.Struct, frozen=True):
    """One list of a tenant, under a filter."""

    name: str
    kind: _Kind
    tenant: int
    chosen: Filter


async def measure(bench: Bench, options: Options) -> Result:
    """Read pages of every list, at any depth, with each filter."""
    async with bench.database(size_max=1, command_timeout=3600.0) as database:
        job = await _fill(database, bench, options)
        measured = list(_lists(job))
        spans: dict[str, list[float]] = {}
        cpu: dict[str, list[float]] = {}
        backend = await database.fetchval("select pg_backend_pid()") if bench.scratch.server_pid else None
        with bench.steps.step(f"{len(measured)} lists", len(measured)) as advance:
            for number, one in enumerate(measured, start=1):
                spans[one.name], cpu[one.name] = await _pages(database, one, options.pages, backend)
                advance(number)
        baseline = await _baseline(database, options.pages * 10)
    together = [span for each in spans.values() for span in each]
    each = {name: percentiles(taken) for name, taken in spans.items()}
    return Result(
        config=NO_WORKERS,
        runs_per_second=rate(len(together), sum(together)),
        baseline_per_second=rate(len(baseline), sum(baseline)),
        ratio=share(sum(together) / len(together), sum(baseline) / len(baseline)),
        latency_ms=percentiles(together),
        more={
            "slowest_p99_ms": max(found.p99 or 0.0 for found in each.values()),
            "slowest_cpu_ms": round(max(max(taken) for taken in cpu.values()) * 1e3, 3),
            "lists": {name: _brief(found, cpu[name]) for name, found in each.items()},
        },
    )


def _brief(found: Percentiles, cpu: list[float]) -> dict[str, float | None]:
    return {"p50": found.p50, "p99": found.p99, "max": found.max, "cpu": percentiles(cpu).p99}


async def _fill(database: Database, bench: Bench, options: Options) -> UUID:
    """Fill every table. Returns a job that has a third of the history."""
    await database.execute(_PARTITIONS, _DAYS)
    await _filled(database, bench, "jobs", _JOBS, options.jobs)
    job: UUID = await database.fetchval("select job_id from duly.jobs where tenant = 1 order by job_id limit 1")
    with bench.steps.step("their next fires"):
        await database.execute(_FIRES)
    await _filled(database, bench, "attempts", _ATTEMPTS, options.attempts, job)
    for box, statement in (("timers", _WAITING), ("ready", _READY), ("dead", _DEAD)):
        with bench.steps.step(f"{options.waiting:,} in {box}"):
            await database.execute(statement, options.waiting, max(2, options.waiting // 100))
    with bench.steps.step("vacuum"):
        await database.execute("vacuum (analyze)")
    return job


async def _filled(database: Database, bench: Bench, what: str, statement: str, number: int, *more: UUID) -> None:
    every = max(2, number // 100)
    with bench.steps.step(f"{number:,} {what}", number) as advance:
        for first in range(1, number + 1, _CHUNK):
            last = min(first + _CHUNK - 1, number)
            await database.execute(statement, first, last, every, number, *more)
            advance(last)


def _lists(job: UUID) -> Iterator[_Measured]:
    for name, kind in _KINDS.items():
        for text in kind.filters:
            chosen = filters.parse(text.format(job=job), kind.fields)
            yield _Measured(f"{name} {text}".strip(), kind, _LARGE, chosen)
        yield _Measured(f"{name} of the small tenant", kind, _SMALL, Filter())


async def _read(database: Database, one: _Measured, depth: float) -> float:
    """Read a page at a depth between 0 and 1. Returns how long it took, without finding its position."""
    at: UUID | DeadAt | None = await _key_at(database, one.kind.table, one.kind.key, one.tenant, depth)
    if isinstance(at, UUID) and one.kind.table == "dead":
        at = DeadAt(await _buried_at(database, at), at)
    began = perf_counter()
    await one.kind.read(database, one.tenant, one.chosen, PAGE, at)
    return perf_counter() - began


async def _pages(
    database: Database, one: _Measured, pages: int, backend: int | None
) -> tuple[list[float], list[float]]:
    """Read pages at the beginning, at the end and anywhere between; the first calls make the connection's plans.

    Returns how long each took, and how much CPU of PostgreSQL, with finding its position, if it can be read.
    """
    random = Random(7)
    for depth in (0.0, 1.0, 0.5):
        await _read(database, one, depth)
    depths = [0.0, 1.0] * (pages // 3) + [random.random() for _ in range(pages - 2 * (pages // 3))]
    spans, cpu = [], []
    for depth in depths:
        before = processes.cpu_of(backend)
        spans.append(await _read(database, one, depth))
        cpu.append(processes.cpu_of(backend) - before)
    return spans, cpu


async def _key_at(database: Database, table: str, key: str, tenant: int, depth: float) -> UUID | None:
    """Find the position at a share of a list, between its first and its last id; none at its beginning."""
    if depth == 0.0:
        return None
    ends = await database.fetchrow(
        f"select (select {key} from duly.{table} where tenant = $1 order by {key} limit 1) as first,"  # noqa: S608 - names of our own
        f" (select {key} from duly.{table} where tenant = $1 order by {key} desc limit 1) as last",
        tenant,
    )
    assert ends is not None
    first, last = ends["first"], ends["last"]
    if depth == 1.0:
        return UUID(int=first.int + 1)
    near = UUID(int=last.int - int((last.int - first.int) * depth))
    found: UUID | None = await database.fetchval(
        f"select {key} from duly.{table} where tenant = $1 and {key} >= $2 order by {key} limit 1",  # noqa: S608 - as above
        tenant,
        near,
    )
    return found


async def _buried_at(database: Database, run_id: UUID) -> datetime:
    """Read when a run was buried; one that was not, just before the first, is taken for the oldest."""
    moment: datetime = await database.fetchval(
        "select coalesce((select buried_at from duly.dead where run_id = $1),"
        " (select min(buried_at) from duly.dead where tenant = 1))",
        run_id,
    )
    return moment


async def _baseline(database: Database, times: int) -> list[float]:
    random, spans = Random(7), []
    for _ in range(times):
        at = await _key_at(database, "jobs", "job_id", _LARGE, random.uniform(0.01, 0.99))
        began = perf_counter()
        await database.fetch(_BASELINE, at)
        spans.append(perf_counter() - began)
    return spans
