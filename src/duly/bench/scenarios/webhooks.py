"""`webhooks`: signed requests with the guard on, to a sink in a process of its own; and what slow receivers cost the others.

`runs_per_second`: for each core of CPU that one worker spends on them, from claim to settle, as it is shipped: with permits,
sealed secrets and callbacks. The baseline is the bare HTTP client, with the same bodies and about the same headers, for each
core it spends; `sender_per_second` is the sending alone, without the engine. `destinations`: how many have a secret in the end.
`healthy_ms`: from due to finish, as recorded, of a steady load; `beside_slow_ms`: the same beside so many
receivers that answer a byte a second; `slow_ratio`: the two p95.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from time import process_time
from typing import Annotated
from uuid import UUID

import aiohttp
import msgspec

from duly.bench import audit
from duly.bench.bench import REPORT_SECONDS, Bench, chunks, wait_for
from duly.bench.processes import cpu_seconds, family
from duly.bench.report import Percentiles, Result, rate, share
from duly.bench.role_process import RoleConfig
from duly.bench.roles import RoleFailed, Roles, configs, running
from duly.bench.senders import sender_alone
from duly.bench.sink import running_sink
from duly.clock import Rng
from duly.domain.jobs.job import Submission
from duly.domain.runs.options import RunPolicy, options_of
from duly.domain.runs.progress import Progress
from duly.domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT, TENANT_DEFAULT, Run
from duly.domain.targets.target import WEBHOOK, Webhook
from duly.domain.targets.webhook_url import origin_of
from duly.moves.admin import destinations
from duly.moves.submit import submit_many
from duly.store.connection import hints
from duly.store.connection.database import Database
from duly.store.tables import destinations as kept_destinations
from duly.worker.context import RunContext
from duly.worker.targets.webhook import Sender, build_request

_BATCH = 1_000
_PAYLOAD = '{"customer":7,"to":"a@b.example"}'
_SLOWEST_PER_SECOND = 200
_STEADY_PAUSE_SECONDS = 0.05
_SLOW_TIMEOUT_SECONDS = 60.0
_SETTLE_SECONDS = 60.0
_SENT = "select count(*) from duly.attempts where outcome = 'succeeded'"
_ARE_CLAIMED = "select count(*) >= $1 from duly.leased"


class Options(msgspec.Struct, frozen=True):
    """The size of the scenario."""

    requests: Annotated[int, "How many webhooks."] = 30_000
    concurrency: Annotated[int, "So many at once."] = 100
    slow: Annotated[int, "Receivers that answer a byte a second."] = 200
    steady_per_second: Annotated[int, "Webhooks beside them."] = 200
    steady_seconds: Annotated[float, "How long."] = 10.0


async def measure(bench: Bench, options: Options) -> Result:
    """Send signed webhooks to a local sink, and beside slow receivers."""
    await bench.scratch.renew()
    async with running_sink() as port, running_sink() as slow_port, bench.scratch.database() as database:
        url, slow_url = f"http://127.0.0.1:{port}/hook", f"http://127.0.0.1:{slow_port}/slow"
        with bench.steps.step("bare client"):
            bare = await _bare(url, options)
        with bench.steps.step("sender"):
            alone = await _alone(port, url, options)
        slots = max(options.concurrency, options.slow * 2 + 100)
        await _widen(database, [url, slow_url], slots)
        async with running(_configs(bench.scratch.url, slots, (port, slow_port))) as roles:
            worked, elapsed = await _drained(bench, database, roles, url, options)
            verdict = await audit.of_one_shots(database, options.requests)
            healthy = await _steady(bench, database, url, options, "healthy alone")
            await _slow(bench, database, slow_url, options)
            beside = await _steady(bench, database, url, options, "healthy beside slow")
        signed = await database.fetchval("select count(distinct destination_id) from duly.destination_secrets")
    return Result(
        config={"workers": 1, "slots": slots},
        runs_per_second=worked,
        baseline_per_second=bare,
        verdict=verdict,
        latency_ms=healthy,
        more={
            "elapsed_per_second": elapsed,
            "sender_per_second": alone,
            "sender_ratio": share(alone, bare),
            "healthy_ms": healthy,
            "beside_slow_ms": beside,
            "slow_ratio": share(beside.p95 or 0.0, healthy.p95),
            "destinations": signed,
        },
    )


def _configs(url: str, slots: int, ports: tuple[int, ...]) -> list[RoleConfig]:
    """Describe a worker that sends, and the maintenance of its destinations, which releases waiting runs."""
    scheduler, worker = configs(url, workers=1, slots=slots, report_seconds=REPORT_SECONDS)
    return [scheduler, msgspec.structs.replace(worker, sink_ports=ports)]


async def _widen(database: Database, urls: Sequence[str], slots: int) -> None:
    """Let receivers take as much as the worker can send: what is measured is the worker, not their limit."""
    for url in urls:
        created = await kept_destinations.make(database, Rng().uuid(), TENANT_DEFAULT, origin_of(url))
        await destinations.limit(database, TENANT_DEFAULT, created, slots=slots, rate=None)


async def _per_core(options: Options, send: Callable[[], Awaitable[None]]) -> float:
    """Return how many a second one core sends that does nothing else."""

    async def send_all(numbers: Iterator[int]) -> None:
        for _ in numbers:
            await send()

    numbers, began = iter(range(options.requests)), process_time()
    await asyncio.gather(*(send_all(numbers) for _ in range(options.concurrency)))
    return rate(options.requests, process_time() - began)


async def _bare(url: str, options: Options) -> float:
    run = _a_run(url)
    requested = build_request(run, Webhook(url), [bytes(32)], 0, {})
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

        async def send() -> None:
            async with session.request(
                requested.method, url, data=requested.body, headers=requested.headers
            ) as response:
                await response.read()

        return await _per_core(options, send)


async def _alone(port: int, url: str, options: Options) -> float:
    caller, sender = sender_alone(port)
    run = _a_run(url)
    try:
        return await _per_core(options, lambda: _sent(sender, run))
    finally:
        await caller.close()


async def _sent(sender: Sender, run: Run) -> None:
    await sender.attempt(RunContext(run, _Nobody()), run)


class _Nobody:
    """Run services that store nothing."""

    def log(self, run: Run, level: str, message: str, fields: dict[str, object]) -> None:
        return

    async def checkpoint(self, run: Run, body: str) -> bool:
        return True

    def progress(self, run: Run, progress: Progress) -> None:
        return

    def checkpoint_sync(self, run: Run, body: str) -> bool:
        return True


async def _drained(bench: Bench, database: Database, roles: Roles, url: str, options: Options) -> tuple[float, float]:
    """Let the worker send what is ready at once. Returns how many a second, for each core it spends and by the clock."""
    number = options.requests
    began_at: datetime = await database.fetchval("select clock_timestamp()")
    pids = [worker.pid for worker in roles.workers]
    began = cpu_seconds(family(pids))
    await _submit(database, url, number, "drain")
    await bench.settled(roles, number, 30 + number / _SLOWEST_PER_SECOND, f"{number:,} webhooks")
    await _until_sent(database, number)
    spent = cpu_seconds(family(pids)) - began
    ended_at: datetime = await database.fetchval("select max(finished_at) from duly.attempts")
    return rate(number, spent), rate(number, (ended_at - began_at).total_seconds())


async def _until_sent(database: Database, number: int) -> None:
    """Wait for so many to have been accepted: one that was postponed for want of a slot is settled, too, and comes again."""
    if not await wait_for(database, _SETTLE_SECONDS, f"{_SENT} having count(*) >= $1", number):
        raise RoleFailed(f"sending every webhook: not within {_SETTLE_SECONDS:.0f} s")


async def _slow(bench: Bench, database: Database, url: str, options: Options) -> None:
    """Have so many slow receivers under way."""
    with bench.steps.step(f"{options.slow} slow receivers"):
        await _submit(database, url, options.slow, "slow", _SLOW_TIMEOUT_SECONDS)
        if not await wait_for(database, _SETTLE_SECONDS, _ARE_CLAIMED, options.slow):
            raise RoleFailed("the slow webhooks were not all claimed")


async def _steady(bench: Bench, database: Database, url: str, options: Options, name: str) -> Percentiles:
    """Offer a steady load, and read how long each took."""
    each = max(1, round(options.steady_per_second * _STEADY_PAUSE_SECONDS))
    rounds = max(1, round(options.steady_seconds / _STEADY_PAUSE_SECONDS))
    before: int = await database.fetchval(_SENT)
    since: datetime = await database.fetchval("select clock_timestamp()")
    with bench.steps.step(name, rounds) as advance:
        for round_number in range(rounds):
            await _submit(database, url, each, f"{name}-{round_number}")
            advance(round_number)
            await asyncio.sleep(_STEADY_PAUSE_SECONDS)
        await _until_sent(database, before + each * rounds)
    _, latency = await audit.recorded(database, since, datetime.now(UTC))
    return latency


async def _submit(database: Database, url: str, number: int, key: str, timeout: float | None = None) -> None:
    options = options_of(target=Webhook(url), timeout_seconds=timeout)
    job = Submission(WEBHOOK, _PAYLOAD, QUEUE_DEFAULT, PRIORITY_DEFAULT, options=options)
    async with database.transaction() as connection:
        for batch, size in enumerate(chunks(number, _BATCH)):
            await submit_many(connection, [job] * size, key=f"{key}-{batch}")
    await hints.send(database, [QUEUE_DEFAULT])


def _a_run(url: str) -> Run:
    now = datetime.now(UTC)
    return Run(
        tid=(0, 1),
        fence=1,
        run_id=UUID(int=1),
        job_id=UUID(int=1),
        scheduled_at=now,
        due_at=now,
        previous_scheduled_at=None,
        generation=1,
        tenant=1,
        attempt=1,
        priority=PRIORITY_DEFAULT,
        losses=0,
        suspect=False,
        payload_stored=False,
        queue=QUEUE_DEFAULT,
        handler=WEBHOOK,
        payload=_PAYLOAD,
        policy=RunPolicy(target=Webhook(url)),
    )
