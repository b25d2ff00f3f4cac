"""`recurring`: many jobs on fixed-rate schedules, firing evenly, in an order that has nothing to do with their ids.

With `--zones N` they are cron schedules instead, each at one second of every minute in one of N time zones; so the offer is a
sixtieth of the jobs, in bursts at each whole second.

The definitions and their next fires are filled in by SQL; from there everything is real: scheduler, workers, maintenance,
leases, fences, unique keys, history. The offer is jobs divided by the period, which is a whole number of seconds. What counts
is what was started within the measured span, by the handlers' own clock; whatever is behind at its end still has to finish,
or it is lost. The baseline inserts, claims and records bare rows. Latency: from due to finish, as recorded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from time import monotonic, time
from typing import Annotated

import msgspec

from duly.bench import audit, fill
from duly.bench.app import STAMPED
from duly.bench.bench import Bench, wait_for
from duly.bench.costs import Spent
from duly.bench.fill import MINUTE, Jobs
from duly.bench.report import Result, percentiles, rate
from duly.bench.roles import Roles
from duly.bench.stamps import Stamp
from duly.domain.triggers.moments import EPOCH
from duly.domain.triggers.schedule.timing import timing_of
from duly.domain.triggers.zones import zones
from duly.store.connection.database import Database

BASELINE_ROWS_MAX = 100_000
WINDOW_SECONDS = 5
_CATCH_UP_SECONDS = 120.0
_LOOK_SECONDS = 0.1
# Whether nothing is still to be done that fell due before a moment.
_IS_CAUGHT_UP = """
select not exists (select from duly.ready where due_at < $1) and not exists (select from duly.leased where due_at < $1)
"""


class Options(msgspec.Struct, frozen=True):
    """The number of jobs, the fires offered each second, for how long, and how long after the processes start."""

    jobs: Annotated[int, "Stored schedules."] = 1_000_000
    rate: Annotated[int, "Fires offered each second."] = 20_000
    seconds: Annotated[int, "How long."] = 60
    ahead_seconds: Annotated[float, "The processes start so long before the first fire, at least."] = 8.0
    zones: Annotated[int, "Cron schedules in so many time zones, each once a minute, instead of intervals."] = 0

    @property
    def every_seconds(self) -> int:
        """The period of each job."""
        return MINUTE if self.zones else max(1, round(self.jobs / self.rate))


async def measure(bench: Bench, options: Options) -> Result:
    """Fire many schedules evenly, in an order unrelated to their ids."""
    async with bench.baseline(min(options.jobs, BASELINE_ROWS_MAX)) as baseline, bench.database() as database:
        start = await _fill(bench, database, options)
        async with bench.roles(stamped=True) as roles:
            spent = await _fire(bench, roles, options, start)
            await _let_finish(bench, database, roles, start + timedelta(seconds=options.seconds))
        stamps = await bench.stamps_by_database()
        with bench.steps.step("audit"):
            verdict = await audit.of_schedules(database, start, stamps)
            until = start + timedelta(seconds=options.seconds)
            recorded, latency = await audit.recorded(database, start, until)
    due = [stamp for stamp in stamps if start.timestamp() <= stamp.due < until.timestamp()]
    windows = _windows(stamps, start.timestamp(), options.seconds)
    started = sum(start.timestamp() <= stamp.started < until.timestamp() for stamp in stamps)
    return Result(
        config={
            "every_seconds": options.every_seconds,
            "offered_per_second": round(options.jobs / options.every_seconds, 1),
        },
        runs_per_second=rate(started, options.seconds),
        baseline_per_second=baseline.bare.cycle_per_second,
        verdict=verdict,
        latency_ms=latency,
        skew_ms=percentiles(stamp.skew for stamp in due),
        more={
            "recorded_skew_ms": recorded,
            "windows": windows,
            "cpu_us_per_run": spent.per_run(started),
            "cpu_percent": spent.percent(),
            "baseline": baseline.bare,
        },
    )


async def _fill(bench: Bench, database: Database, options: Options) -> datetime:
    """Fill jobs and timers in. Returns the moment of the first fire."""
    began = monotonic()
    period = timedelta(seconds=options.every_seconds)
    if options.zones:
        await fill.fill_cron_jobs(database, options.jobs, STAMPED, _cohorts(options.zones), bench.steps)
    else:
        await fill.fill_jobs(database, Jobs(options.jobs, STAMPED, options.every_seconds, period), bench.steps)
    ahead = timedelta(seconds=options.ahead_seconds)
    return await fill.arm_ahead(database, options.jobs, ahead, bench.steps, monotonic() - began)


def _cohorts(number: int) -> dict[int, str]:
    """Compile a cron schedule for each second of the minute in so many zones. Returns their stored shapes by cohort."""
    found: dict[int, str] = {}
    for second in range(MINUTE):
        for zone in sorted(zones.names())[:number]:
            shape = {"trigger": {"type": "cron", "expr": f"{second} * * * * *", "tz": zone}}
            timing = timing_of(shape, job_id=None, now=EPOCH, calendars={})
            assert timing.cohort is not None
            assert timing.schedule is not None
            found[timing.cohort] = timing.schedule
    return found


async def _fire(bench: Bench, roles: Roles, options: Options, start: datetime) -> Spent:
    """Let the span pass. Returns what it cost."""
    began = time()
    ahead = start.timestamp() - began
    with bench.steps.step("waiting for the first fire", ahead) as advance:
        while time() < start.timestamp():
            advance(time() - began)
            await asyncio.sleep(_LOOK_SECONDS)
    costs = bench.costs(roles)
    with bench.steps.step(f"{options.seconds} s of fires", options.seconds) as advance:
        while (passed := time() - start.timestamp()) < options.seconds:
            advance(passed)
            for role in roles.everyone:
                role.check()
            await asyncio.sleep(_LOOK_SECONDS)
    return costs.spent()


async def _let_finish(bench: Bench, database: Database, roles: Roles, until: datetime) -> None:
    """Stage nothing more, and let what fell due within the span end; what was staged beyond it goes back unused."""
    assert roles.scheduler
    with bench.steps.step("letting the rest finish"):
        await roles.scheduler.stop()
        await wait_for(database, _CATCH_UP_SECONDS, _IS_CAUGHT_UP, until)


def _windows(stamps: Sequence[Stamp], start: float, seconds: int) -> list[dict[str, float | None]]:
    """Cut the span into windows, so that a dip shows: how many were started in each, and how late those due in it were."""
    started = Counter(int((stamp.started - start) // WINDOW_SECONDS) for stamp in stamps)
    skews: dict[int, list[float]] = {}
    for stamp in stamps:
        skews.setdefault(int((stamp.due - start) // WINDOW_SECONDS), []).append(stamp.skew)
    return [
        {
            "second": number * WINDOW_SECONDS,
            "runs_per_second": rate(started[number], min(WINDOW_SECONDS, seconds - number * WINDOW_SECONDS)),
            "skew_p95_ms": percentiles(skews.get(number, ())).p95,
            "skew_max_ms": percentiles(skews.get(number, ())).max,
        }
        for number in range(-(-seconds // WINDOW_SECONDS))
    ]
