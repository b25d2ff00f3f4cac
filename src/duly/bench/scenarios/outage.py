"""`outage`: schedules that were not fired for hours, when everything starts again.

First under `fire_once`: each schedule gives one run, and the rest is recorded as skipped. Then under `fire_all`: what was
missed goes through the backfill lane, at most so many a second in the whole fleet, while new one-shots are submitted beside
it; how late those start is what counts. The baseline is the lane's own limit.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from time import monotonic
from typing import Annotated, Any

import msgspec

from duly.bench import audit
from duly.bench.app import NOOP, STAMPED, one_shot
from duly.bench.bench import Bench, wait_for
from duly.bench.report import Result, percentiles, rate
from duly.domain.jobs.job import Recurring
from duly.moves.schedules.backfill import FLEET_RATE
from duly.moves.submit import submit_many, submit_recurring
from duly.store.boxes import history
from duly.store.connection.database import Database

_START_SECONDS = 60.0
_SETTLE_SECONDS = 30.0
_TICK_SECONDS = 0.1
# As an outage leaves them: the next fire is that of so many hours ago.
_LONG_AGO = """
update duly.timers set scheduled_at = date_trunc('minute', scheduled_at) - $1::interval,
       due_at = date_trunc('minute', due_at) - $1::interval
returning date_trunc('minute', clock_timestamp())
"""
_RAN = "select count(distinct run_id) from duly.attempts where outcome = 'succeeded' and handler = $1 and scheduled_at <= $2"
_IS_DONE = """
select not exists (select from duly.ready where handler = $1) and not exists (select from duly.leased where handler = $1)
"""
_SKIPPED = "select coalesce(sum((detail->>'count')::bigint), 0)::bigint from duly.attempts where outcome = 'skipped'"


class Options(msgspec.Struct, frozen=True):
    """The number of one-minute schedules, the length of the outage, and the new work beside the catch-up."""

    schedules: Annotated[int, "One-minute schedules."] = 1_000
    hours: Annotated[int, "How long they were not fired."] = 6
    seconds: Annotated[int, "How long the lane is watched."] = 30
    new_per_second: Annotated[int, "One-shots submitted beside it."] = 200


class Once(msgspec.Struct, frozen=True):
    """The result of `fire_once` after the outage: runs for missed fires, recorded skips, and the duration."""

    runs: int
    skipped: int
    seconds: float


async def measure(bench: Bench, options: Options) -> Result:
    """Start after hours without a scheduler: what was missed, and how late new work is beside it."""
    once = await _fire_once(bench, options)
    async with bench.database() as database:
        until = await _fill(database, options, "fire_all")
        async with bench.roles(stamped=True) as roles:
            await roles.until(lambda: roles.settled > 0, _START_SECONDS, "starting the lane")
            before = await database.fetchval(_RAN, NOOP, until)
            began = monotonic()
            with bench.steps.step(f"{options.seconds} s of catching up", options.seconds) as advance:
                submitted = await _new_work(database, options, began, advance)
            elapsed = monotonic() - began
            after = await database.fetchval(_RAN, NOOP, until)
            await wait_for(database, _SETTLE_SECONDS, _IS_DONE, STAMPED)  # The lane goes on.
        stamps = await bench.stamps_by_database()
        broken = await history.verify(database)
    return Result(
        runs_per_second=rate(after - before, elapsed),
        baseline_per_second=FLEET_RATE,
        verdict=audit.of_stamps(submitted + len(broken), stamps),
        skew_ms=percentiles(stamp.skew for stamp in stamps),
        more={"new_per_second": rate(submitted, elapsed), "fire_once": once},
    )


async def _fire_once(bench: Bench, options: Options) -> Once:
    async with bench.database() as database:
        until = await _fill(database, options, "fire_once")
        began = monotonic()
        async with bench.roles() as roles:
            with bench.steps.step("fire_once"):
                await roles.until(lambda: roles.settled >= options.schedules, _START_SECONDS, "firing once")
            elapsed = monotonic() - began
            await asyncio.sleep(2)  # Whatever comes too much comes at once.
        return Once(await database.fetchval(_RAN, NOOP, until), await database.fetchval(_SKIPPED), round(elapsed, 2))


async def _fill(database: Database, options: Options, policy: str) -> datetime:
    """Submit the schedules and let them have been forgotten. Returns the last moment they missed."""
    schedule = {"trigger": {"type": "cron", "expr": "* * * * *", "tz": "Europe/Berlin"}, "misfire": {"policy": policy}}
    for number in range(options.schedules):
        await submit_recurring(database, Recurring(NOOP, "{}", "default", 5, schedule), key=f"{policy}/{number}")
    rows: list[Any] = list(await database.fetch(_LONG_AGO, timedelta(hours=options.hours, minutes=1)))
    until: datetime = rows[0][0]
    return until


async def _new_work(database: Database, options: Options, began: float, advance: Any) -> int:
    """Submit new one-shots evenly. Returns how many."""
    submitted = 0
    while (passed := monotonic() - began) < options.seconds:
        wanted = int(passed * options.new_per_second) - submitted
        if wanted > 0:
            jobs = [one_shot(STAMPED)] * wanted
            await submit_many(database, jobs, key=f"new/{submitted}")
            submitted += wanted
        advance(passed)
        await asyncio.sleep(_TICK_SECONDS)
    return submitted
