"""`http`: what the API does in a second, over kept-alive connections, in a process of its own.

Creates: one job a request, durable when it is answered, against a bare INSERT with its commit behind the same server; in turns,
so that both see the same machine. Latency: of these creates. `batch_per_second`: jobs of NDJSON requests. Then, with many jobs
stored: `read_ms`, one job; `list_ms`, pages of 50 at depths all over the list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice, repeat
from random import Random
from time import perf_counter
from typing import Annotated
from uuid import UUID

import msgspec

from duly.api.paging import token
from duly.bench.app import NOOP
from duly.bench.bench import NO_WORKERS, Bench, chunks
from duly.bench.fill import Jobs, arm, fill_jobs
from duly.bench.http_calls import Connection, connected, request, send_all
from duly.bench.report import Percentiles, Result, Verdict, percentiles, rate
from duly.bench.role_process import RoleConfig
from duly.bench.roles import free_port, running
from duly.clock import Rng
from duly.domain.tenancy.api_key import Scope
from duly.moves.admin.api_keys import create_key
from duly.store.connection.database import Database

_BATCH = 1_000
_LINES = 50_000
_PAGE = 50
_JOB = msgspec.json.encode({"target": {"type": "function", "handler": NOOP}, "payload": {"customer": 7}})
_BARE = """
create schema if not exists duly_bench_baseline;
create table duly_bench_baseline.bare (id bigint generated always as identity primary key, body jsonb not null)
"""


class Options(msgspec.Struct, frozen=True):
    """The size of the scenario."""

    creates: Annotated[int, "Requests that create one job each."] = 20_000
    connections: Annotated[int, "Over so many connections."] = 32
    batches: Annotated[int, "Requests that create 50,000 jobs each."] = 4
    jobs: Annotated[int, "Stored schedules while reading."] = 1_000_000
    reads: Annotated[int, "How many jobs, and how many pages, are read."] = 5_000
    readers: Annotated[int, "Over so many connections."] = 4


async def measure(bench: Bench, options: Options) -> Result:
    """Create, read and list jobs over HTTP."""
    async with bench.database() as database:
        await database.execute(_BARE)
        key = await _key(database)
        port = free_port()
        async with running([RoleConfig("api", bench.scratch.url, "api", port=port)]):
            created, bare = await _creates(bench, port, key, options)
            batch_per_second = await _batches(bench, port, key, options.batches)
            await _fill(bench, database, options.jobs)
            read_ms, list_ms = await _reads(bench, database, port, key, options)
        stored = await database.fetchval("select count(*) from duly.ready")
    return Result(
        config=NO_WORKERS,
        runs_per_second=rate(options.creates, sum(created.batches)),
        baseline_per_second=rate(options.creates, sum(bare.batches)),
        verdict=Verdict(lost=options.creates + options.batches * _LINES - stored),
        latency_ms=percentiles(created.requests),
        more={
            "baseline_ms": percentiles(bare.requests),
            "batch_per_second": batch_per_second,
            "read_ms": read_ms,
            "list_ms": list_ms,
        },
    )


class _Durations(msgspec.Struct):
    """The duration of each request and of each batch."""

    requests: list[float] = []
    batches: list[float] = []


async def _creates(bench: Bench, port: int, key: str, options: Options) -> tuple[_Durations, _Durations]:
    ours, bare = _Durations(), _Durations()
    create, insert = request("POST", "/v1/jobs", key, _JOB), request("POST", "/bare", key, _JOB)
    connections = await connected(port, options.connections)
    with bench.steps.step("creates", options.creates) as advance:
        for done, batch in enumerate(chunks(options.creates, _BATCH)):
            for measured, request_bytes in ((ours, create), (bare, insert)):
                began = perf_counter()
                measured.requests += await send_all(connections, repeat(request_bytes, batch), 202)
                measured.batches.append(perf_counter() - began)
            advance((done + 1) * _BATCH)
    _hang_up(connections)
    return ours, bare


async def _batches(bench: Bench, port: int, key: str, number: int) -> float:
    body = b"\n".join([_JOB] * _LINES)
    request_bytes = request("POST", "/v1/jobs:batch", key, body, "application/x-ndjson")
    [connection] = await connected(port, 1)
    with bench.steps.step("batches", number):
        began = perf_counter()
        for _ in range(number):
            await connection.exchange(request_bytes, 200)
        elapsed = perf_counter() - began
    connection.close()
    return rate(number * _LINES, elapsed)


async def _fill(bench: Bench, database: Database, number: int) -> None:
    hour = timedelta(hours=1)
    base = await fill_jobs(database, Jobs(number, NOOP, 86_400, hour), bench.steps, hour)
    await arm(database, number, base + hour, bench.steps)


async def _reads(
    bench: Bench, database: Database, port: int, key: str, options: Options
) -> tuple[Percentiles, Percentiles]:
    sample = f"select job_id from duly.jobs tablesample bernoulli ({min(100.0, 500_000 / options.jobs)})"  # noqa: S608
    job_ids: list[UUID] = [row[0] for row in await database.fetch(sample)]
    draw = Random(7)
    connections = await connected(port, options.readers)
    with bench.steps.step("reads"):
        reads = await send_all(connections, _each(draw, job_ids, key, "/v1/jobs/{}", options.reads), 200)
    positions = [token(job_id, "jobs ") for job_id in job_ids]
    path = f"/v1/jobs?page_size={_PAGE}&page_token={{}}"
    with bench.steps.step("lists"):
        await send_all(connections, _each(draw, positions, key, path, options.readers * 8), 200)  # Plans are made.
        pages = await send_all(connections, _each(draw, positions, key, path, options.reads), 200)
    _hang_up(connections)
    return percentiles(reads), percentiles(pages)


def _each(draw: Random, values: Sequence[object], key: str, path: str, number: int) -> Iterator[bytes]:
    return islice(iter(lambda: request("GET", path.format(draw.choice(values)), key), b""), number)


def _hang_up(connections: Sequence[Connection]) -> None:
    for connection in connections:
        connection.close()


async def _key(database: Database) -> str:
    created = await create_key(database, Rng(), tenant=1, name="bench", scopes=[Scope.ADMIN])
    return created.text.reveal()
