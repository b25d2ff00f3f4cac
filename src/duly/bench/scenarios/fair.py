"""`fair`: one tenant has a flood of runs ready, and another submits one run at a time.

The other's runs are measured alone first, then beside the flood; only those count that were submitted while the flood was
there. Skew is theirs beside the flood, by the handlers' own clock; latency is the same when they were alone. The rate is that
of the flood while they came; there is no baseline of bare SQL, which knows no tenants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Annotated
from uuid import UUID

import msgspec

from duly.bench import audit
from duly.bench.app import NOOP, STAMPED, one_shot
from duly.bench.bench import Bench
from duly.bench.fill import fill_ready
from duly.bench.report import Result, percentiles, rate
from duly.bench.stamps import Stamp
from duly.domain.runs.run import QUEUE_DEFAULT
from duly.moves.admin.tenants import create_tenant
from duly.moves.submit import submit
from duly.store.connection import hints
from duly.store.connection.database import Database
from duly.store.tenancy.tenants import Limits

_START_SECONDS = 60.0
_SETTLE_SECONDS = 60.0
_IS_FLOODED = "select exists (select from duly.ready where queue = $1 and tenant = 1)"


class Options(msgspec.Struct, frozen=True):
    """The size of the flood, and how many runs the other submits, so far apart."""

    flood: Annotated[int, "Ready runs of one tenant."] = 100_000
    samples: Annotated[int, "Runs of another, one at a time."] = 100
    pause_ms: Annotated[float, "Pause between two of them."] = 50.0


async def measure(bench: Bench, options: Options) -> Result:
    """Submit single runs of a tenant, alone and beside another's flood."""
    async with bench.database() as database:
        other = (await create_tenant(database, "other", Limits())).tenant
        async with bench.roles(stamped=True, report_seconds=0.1) as roles:
            with bench.steps.step("alone", options.samples) as advance:
                alone = await _samples(database, other, options, "alone", advance)
            await roles.until(lambda: roles.settled >= len(alone), _START_SECONDS, "settling what came alone")
            await fill_ready(database, options.flood, NOOP)
            await hints.send(database, [QUEUE_DEFAULT])
            before, began = roles.settled, monotonic()
            with bench.steps.step(f"beside {options.flood:,}", options.samples) as advance:
                beside = await _samples(database, other, options, "beside", advance, while_flooded=True)
            wanted = len(alone) + len(beside) + options.flood
            await roles.until(
                lambda: roles.settled >= wanted, _SETTLE_SECONDS + options.flood / 500, "settling the flood"
            )
            achieved = rate(roles.settled - before, monotonic() - began)
        stamps = await bench.stamps_by_database()
    return Result(
        runs_per_second=achieved,
        baseline_per_second=None,
        verdict=audit.of_stamps(len(alone) + len(beside), stamps),
        latency_ms=percentiles(_skews(stamps, alone)),
        skew_ms=percentiles(_skews(stamps, beside)),
        more={"samples_beside": len(beside)},
    )


async def _samples(
    database: Database,
    tenant: int,
    options: Options,
    name: str,
    advance: Callable[[float], None],
    *,
    while_flooded: bool = False,
) -> set[UUID]:
    """Submit one at a time. Returns the runs."""
    job, created = one_shot(STAMPED), set[UUID]()
    for number in range(options.samples):
        if while_flooded and not await database.fetchval(_IS_FLOODED, QUEUE_DEFAULT):
            break
        created.add((await submit(database, job, key=f"{name}/{number}", tenant=tenant)).job_id)
        await hints.send(database, [QUEUE_DEFAULT])
        await asyncio.sleep(options.pause_ms / 1_000)
        advance(number)
    return created


def _skews(stamps: list[Stamp], runs: set[UUID]) -> list[float]:
    return [stamp.skew for stamp in stamps if UUID(bytes=stamp.run_id) in runs]
