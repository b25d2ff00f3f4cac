"""`herd`: many cron jobs of one tenant at one instant, spread by their jitter, and another tenant's steady runs beside them.

Skew is that of the herd against its due moments, by the handlers' own clock; `beside_ms` is that of the steady runs. The rate
is that of the herd over its span, and the baseline what the jitter offers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from time import monotonic, time
from typing import Annotated
from uuid import UUID

import msgspec

from duly.bench import audit
from duly.bench.app import STAMPED, one_shot
from duly.bench.bench import Bench
from duly.bench.report import Result, percentiles, rate
from duly.domain.jobs.job import Recurring
from duly.domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT
from duly.moves.admin.tenants import create_tenant
from duly.moves.submit import submit, submit_recurring
from duly.store.connection import hints
from duly.store.connection.database import Database
from duly.store.tenancy.tenants import Limits

_SETTLE_SECONDS = 60.0
# The herd is copied from one job that was submitted; each copy has its own due moment behind the instant, as its jitter has it.
_JOBS = """
insert into duly.jobs
select (jsonb_populate_record(first, jsonb_build_object('job_id', duly.run_id(first.created_at, 'herd/' || number)))).*
  from duly.jobs as first, generate_series(2, $1::int) as number
"""
_TIMERS = """
insert into duly.timers
select (jsonb_populate_record(first, jsonb_build_object('job_id', jobs.job_id, 'shard', duly.shard_of(jobs.job_id)))).*
  from duly.timers as first, duly.jobs where jobs.job_id <> first.job_id
"""
_INSTANT = """
update duly.timers set scheduled_at = clock_timestamp() + $1::interval,
       due_at = clock_timestamp() + $1::interval + random() * $2::interval
"""


class Options(msgspec.Struct, frozen=True):
    """The number of jobs, the seconds over which their jitter spreads them, and the runs of another tenant beside them."""

    jobs: Annotated[int, "Cron jobs at one instant."] = 50_000
    jitter_seconds: Annotated[float, "Over so long they are spread."] = 60.0
    steady_per_second: Annotated[int, "Runs of another tenant beside them."] = 50
    ahead_seconds: Annotated[float, "The processes start so long before the instant, at least."] = 10.0


async def measure(bench: Bench, options: Options) -> Result:
    """Fire many cron jobs of one instant, spread by jitter, beside another tenant's steady runs."""
    async with bench.database() as database:
        other = (await create_tenant(database, "other", Limits())).tenant
        instant = await _fill(bench, database, options)
        async with bench.roles(stamped=True, report_seconds=0.2) as roles:
            span = instant.timestamp() + options.jitter_seconds - time()
            with bench.steps.step("the herd", span) as advance:
                steady = await _steady(database, other, options, span, advance)
            wanted = options.jobs + len(steady)
            await roles.until(lambda: roles.settled >= wanted, _SETTLE_SECONDS, "settling every run")
        stamps = await bench.stamps_by_database()
    herd = [stamp for stamp in stamps if UUID(bytes=stamp.run_id) not in steady]
    span = max(stamp.started for stamp in herd) - min(stamp.due for stamp in herd)
    return Result(
        runs_per_second=rate(len(herd), span),
        baseline_per_second=options.jobs / options.jitter_seconds,
        verdict=audit.of_stamps(options.jobs + len(steady), stamps),
        skew_ms=percentiles(stamp.skew for stamp in herd),
        more={"beside_ms": percentiles(stamp.skew for stamp in stamps if UUID(bytes=stamp.run_id) in steady)},
    )


async def _fill(bench: Bench, database: Database, options: Options) -> datetime:
    """Submit the herd. Returns its instant."""
    jitter = f"PT{options.jitter_seconds:g}S"
    schedule = {"trigger": {"type": "cron", "expr": "0 3 * * *", "tz": "Europe/Berlin"}, "jitter": {"max": jitter}}
    with bench.steps.step(f"{options.jobs:,} jobs"):
        first = Recurring(STAMPED, "{}", QUEUE_DEFAULT, PRIORITY_DEFAULT, schedule)
        await submit_recurring(database, first, key="herd")
        await database.execute(_JOBS, options.jobs)
        await database.execute(_TIMERS)
        ahead, spread = timedelta(seconds=options.ahead_seconds), timedelta(seconds=options.jitter_seconds)
        await database.execute(_INSTANT, ahead, spread)
    instant: datetime = await database.fetchval("select max(scheduled_at) from duly.timers")
    return instant


async def _steady(
    database: Database, tenant: int, options: Options, seconds: float, advance: Callable[[float], None]
) -> set[UUID]:
    """Submit one-shots evenly until the herd's span is over. Returns the runs."""
    job, created, began = one_shot(STAMPED), set[UUID](), monotonic()
    while (passed := monotonic() - began) < seconds:
        created.add((await submit(database, job, key=f"steady/{len(created)}", tenant=tenant)).job_id)
        await hints.send(database, [QUEUE_DEFAULT])
        advance(passed)
        await asyncio.sleep(max(0.0, len(created) / options.steady_per_second - (monotonic() - began)))
    return created
