"""`outage`: schedules that were not fired for hours, when everything starts again.

First under `fire_once`: each schedule gives one run, and the rest is recorded as skipped. Then under `fire_all`: what was
missed goes through the backfill lane, at most so many a second in the whole fleet, while new one-shots are submitted beside
it; how late those start is what counts. The baseline is the lane's own limit.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

import msgspec

from duly.bench.app import NOOP, STAMPED
from duly.bench.bench import Bench
from duly.bench.report import Result, percentiles, rate, share
from duly.domain.jobs.job import Recurring, Submission
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
_IS_WAITING = """
select exists (select from duly.ready where handler = $1) or exists (select from duly.leased where handler = $1)
"""
_SKIPPED = "select coalesce(sum((detail->>'count')::bigint), 0)::bigint from duly.attempts where outcome = 'skipped'"


class Options(msgspec.Struct, frozen=True):
    """How many one-minute schedules were not fired for how long, and how much new work comes beside the catch-up."""

    schedules: int = 1_000
    hours: int = 6
    seconds: int = 30
    new_per_second: int = 200


class Once(msgspec.Struct, frozen=True):
    """What `fire_once` made of the outage: runs of what was missed, what is on record as skipped, and how long it took."""

    runs: int
    skipped: int
    seconds: float


async def measure(bench: Bench, options: Options) -> Result:
    """Start after an outage, twice."""
    await bench.place.renew()
    once = await _fire_once(bench, options)
    await bench.place.renew()
    async with bench.place.database() as database:
        until = await _fill(database, options, "fire_all")
        async with bench.roles(stamped=True) as roles:
            await roles.until(lambda: roles.settled > 0, _START_SECONDS, "starting the lane")
            before = await database.fetchval(_RAN, NOOP, until)
            began = monotonic()
            with bench.steps.step(f"{options.seconds} s of catching up", options.seconds) as advance:
                submitted = await _new_work(database, options, began, advance)
            took = monotonic() - began
            after = await database.fetchval(_RAN, NOOP, until)
            await _until_done(database)
        stamps = await bench.stamps_by_database()
        broken = await history.verify(database)
    made = rate(after - before, took)
    return Result(
        scenario="outage",
        config=bench.config(options),
        runs_per_second=made,
        baseline_per_second=FLEET_RATE,
        ratio=share(made, FLEET_RATE),
        early=sum(stamp.started < stamp.due for stamp in stamps),
        lost=submitted - len({stamp.run_id for stamp in stamps}) + len(broken),
        duplicates=len(stamps) - len({stamp.run_id for stamp in stamps}),
        latency_ms=percentiles(()),
        skew_ms=percentiles(stamp.skew for stamp in stamps),
        more={"new_per_second": rate(submitted, took), "fire_once": once},
    )


async def _until_done(database: Database) -> None:
    """Let the new work end; the lane goes on."""
    deadline = monotonic() + _SETTLE_SECONDS
    while monotonic() < deadline:
        if not await database.fetchval(_IS_WAITING, STAMPED):
            return
        await asyncio.sleep(_TICK_SECONDS)


async def _fire_once(bench: Bench, options: Options) -> Once:
    async with bench.place.database() as database:
        until = await _fill(database, options, "fire_once")
        began = monotonic()
        async with bench.roles() as roles:
            with bench.steps.step("fire_once"):
                await roles.until(lambda: roles.settled >= options.schedules, _START_SECONDS, "firing once")
            took = monotonic() - began
            await asyncio.sleep(2)  # Whatever comes too much comes at once.
        return Once(await database.fetchval(_RAN, NOOP, until), await database.fetchval(_SKIPPED), round(took, 2))


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
            jobs = [Submission(STAMPED, "{}", "default", 5)] * wanted
            await submit_many(database, jobs, key=f"new/{submitted}")
            submitted += wanted
        advance(passed)
        await asyncio.sleep(_TICK_SECONDS)
    return submitted
