"""`triggers`: what a schedule costs: compiling it, asking for its next moment, finding a cohort's, and the worst input known.

`runs_per_second` is how many next moments one core computes, at the median trigger; there is no baseline, because bare SQL
knows no schedules.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import median
from typing import Any

import msgspec

from duly.bench.bench import Bench
from duly.bench.report import Result, rate
from duly.domain.triggers.compiled import Compiled
from duly.domain.triggers.compiling import compile_trigger
from duly.domain.triggers.errors import TriggerError

NOW = datetime(2026, 3, 7, 10, tzinfo=UTC)
JOB_ID = "01920000-0000-7000-8000-000000000001"
_STEPS = 200
_ATTEMPTS = 5
_START = "2026-01-01T09:00:00"

# What people write.
CORPUS: tuple[dict[str, Any], ...] = (
    {"type": "cron", "expr": "* * * * *"},
    {"type": "cron", "expr": "*/15 * * * *", "tz": "Europe/London"},
    {"type": "cron", "expr": "30 2 * * 1-5", "tz": "America/New_York"},
    {"type": "cron", "expr": "0 9 15W * MON", "tz": "Australia/Lord_Howe"},
    {"type": "cron", "expr": "0 0 L * *", "tz": "Asia/Tokyo"},
    {"type": "cron", "expr": "*/10 * * * * *"},
    {"type": "cron", "expr": "H H(1-5) * * *", "tz": "Africa/Casablanca"},
    {"type": "cron", "expr": "0 8-18 * * MON#1,FRI#L", "tz": "Pacific/Chatham"},
    {"type": "cron", "expr": "@monthly", "tz": "America/Santiago"},
    {"type": "interval", "every": "PT90S", "anchor": "2026-01-01T00:00:00Z"},
    {"type": "iso8601", "text": "R/2026-01-31T09:00:00Z/P1M", "tz": "Europe/Paris"},
    {"type": "iso8601", "text": "R/2026-01-31T09:00:00Z/PT36H"},
    {"type": "rrule", "rrule": "FREQ=WEEKLY;BYDAY=MO,WE,FR", "dtstart": _START, "tz": "Europe/Paris"},
    {
        "type": "rrule",
        "rrule": "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
        "dtstart": _START,
        "tz": "Europe/Paris",
    },
    {"type": "rrule", "rrule": "FREQ=DAILY;INTERVAL=3;COUNT=100", "dtstart": _START, "tz": "Europe/Paris"},
    {"type": "text", "text": "every weekday at 9:30am", "tz": "Europe/London"},
    {"type": "any", "of": [{"type": "cron", "expr": "0 9 * * *"}, {"type": "cron", "expr": "30 17 * * *"}]},
)


def hostile() -> tuple[object, ...]:
    """Return what is rare, long, or meant to hurt."""
    zone = "America/New_York"
    return (
        {"type": "cron", "expr": "0 0 29 2 +MON", "tz": zone},
        {"type": "cron", "expr": "59 59 23 29 2 +SUN", "tz": zone},
        {"type": "cron", "expr": "*/7 2 29 2 +SUN", "tz": zone},
        {"type": "cron", "expr": "0 0 31W 12 +SUN#5", "tz": zone},
        {"type": "cron", "expr": "0 0 30 2 *"},
        {"type": "cron", "expr": "0 0 L-30 2 +MON"},
        {"type": "cron", "expr": "1," * 120 + "1 * * * *"},
        {"type": "cron", "expr": "0-59/1," * 30 + "1 * * * *"},
        {"type": "cron", "expr": "9" * 250},
        {"type": "cron", "expr": "*/" + "9" * 200 + " * * * *"},
        {"type": "cron", "expr": "-" * 256},
        {"type": "cron", "expr": "(" * 200 + " H * * *"},
        {"type": "cron", "expr": "x" * 1_000_000},
        {"type": "cron", "expr": "* * * * *", "tz": "Europe/Lundon"},
        {"type": "cron", "expr": "* * * * *", "tz": "x" * 1_000_000},
        {"type": "cron", "expr": "* * * * *", "z" * 100_000: 1},
        {"type": "at", "at": "9" * 1_000_000},
        {"type": "interval", "every": "PT" + "9" * 100_000 + "S"},
        {"type": "interval", "every": "P" * 100_000},
        {"type": "iso8601", "text": "R/1900-01-01T00:00:00Z/P1D", "tz": zone},
        {"type": "iso8601", "text": "R999999999/1900-01-31T00:00:00Z/P1M1D", "tz": zone},
        {"type": "rrule", "rrule": "FREQ=DAILY;COUNT=5000", "dtstart": "1900-01-01T00:00:00", "tz": zone},
        {"type": "rrule", "rrule": "FREQ=WEEKLY;BYMONTH=1,2,3,4,5,6,7,8,9,10,11;COUNT=5000", "dtstart": "1900-01-01T00:00:00"},
        {"type": "rrule", "rrule": "FREQ=WEEKLY;BYDAY=MO;BYMONTH=2;COUNT=5000", "dtstart": "1900-01-01T00:00:00"},
        {"type": "rrule", "rrule": "FREQ=MONTHLY;BYMONTHDAY=31;BYMONTH=2", "dtstart": "1900-01-01T00:00:00"},
        {"type": "rrule", "rrule": "FREQ=MONTHLY;BYMONTHDAY=31;BYSETPOS=2;COUNT=5000", "dtstart": "1900-01-01T00:00:00"},
        {"type": "rrule", "rrule": "FREQ=DAILY;INTERVAL=7;BYDAY=TU", "dtstart": "1900-01-01T00:00:00"},
        {"type": "rrule", "rrule": "FREQ=YEARLY;BYDAY=MO;BYSETPOS=366", "dtstart": "1900-01-01T00:00:00"},
        {"type": "rrule", "rrule": "FREQ=WEEKLY;BYDAY=MO,TU;BYSETPOS=3", "dtstart": "1900-01-01T00:00:00"},
        {"type": "rrule", "rrule": "FREQ=WEEKLY;BYDAY=MO,TU;BYMONTH=1;BYSETPOS=2;COUNT=5000", "dtstart": "1900-01-01T00:00:00"},
        {"type": "rrule", "rrule": _dense_rule(), "dtstart": "1900-01-01T00:00:00", "tz": zone},
        {"type": "rrule", "rrule": "A=B;" * 250, "dtstart": _START},
        {"type": "rrule", "rrule": "FREQ=DAILY", "dtstart": _START, "exdates": _exdates()},
        {"type": "text", "text": "every " + "monday, " * 31},
        {"type": "text", "text": "every " * 40},
        {"type": "text", "text": "é" * 250},
        {"type": "any", "of": [{"type": "cron", "expr": f"0 0 29 2 +{day}", "tz": zone} for day in range(7)]},
        {"type": "x" * 1_000_000},
    )  # fmt: skip


def _exdates() -> list[str]:
    return [f"2026-{1 + day // 28:02}-{1 + day % 28:02}T09:00:00" for day in range(336)]


def _dense_rule() -> str:
    minutes, hours = ",".join(map(str, range(60))), ",".join(map(str, range(24)))
    positions = ",".join(str(number) for number in range(1, 367, 3))
    return f"FREQ=YEARLY;BYDAY=MO;BYHOUR={hours};BYMINUTE={minutes};BYSETPOS={positions}"[:1024].rstrip("-,")


class Options(msgspec.Struct, frozen=True):
    """Nothing can be chosen: the corpus is part of the measure."""


async def measure(bench: Bench, options: Options) -> Result:
    """Compile schedules and ask for their next moments."""
    found = figures()
    return Result(
        config={"corpus": len(CORPUS)},
        runs_per_second=rate(1, found["next_us_median"] / 1e6),
        baseline_per_second=None,
        more=found,
    )


def figures() -> dict[str, Any]:
    """Measure on one core; each figure is the best of several attempts, in microseconds."""
    compiled = [_compile(trigger) for trigger in CORPUS]
    compiles = [_best(partial(_compile, trigger)) for trigger in CORPUS]
    nexts = [_next(trigger) for trigger in compiled]
    worst = {repr(trigger)[:80]: _best(partial(_all, trigger)) for trigger in (*CORPUS, *hostile())}
    slowest = max(worst, key=lambda text: worst[text])
    return {
        "compile_us_median": median(compiles),
        "compile_us_max": max(compiles),
        "next_us_median": median(nexts),
        "next_us_max": max(nexts),
        "cohort_hit_us": _cohort_hit(compiled),
        "worst_us": worst[slowest],
        "worst_input": slowest,
    }


def _compile(trigger: object) -> Compiled:
    return compile_trigger(trigger, job_id=JOB_ID, now=NOW)


def _all(trigger: object) -> None:
    """Do all that one request can ask for: compile, next, latest, describe."""
    try:
        compiled = _compile(trigger)
    except TriggerError:
        return
    compiled.next_after(NOW)
    compiled.latest_at_or_before(NOW)
    compiled.describe()


def _next(compiled: Compiled) -> float:
    """Measure the mean of a walk, so that days, months and clock changes are crossed as they come."""
    return min(_walk(compiled) for _ in range(_ATTEMPTS)) / _STEPS


def _walk(compiled: Compiled) -> float:
    began, moment = time.perf_counter(), NOW
    for _ in range(_STEPS):
        moment = compiled.next_after(moment) or NOW
    return (time.perf_counter() - began) * 1e6


def _cohort_hit(compiled: Sequence[Compiled]) -> float:
    """Measure finding the next moment of a cohort that another job has asked for already."""
    cohorts = {(number, NOW): each.next_after(NOW) for number, each in enumerate(compiled)}
    lookups = [(number, NOW + timedelta(0)) for number in range(len(compiled))] * _STEPS

    def look() -> None:
        for pair in lookups:
            cohorts.get(pair)

    return _best(look) / len(lookups)


def _best(call: Callable[[], object]) -> float:
    """Return the best of several attempts in microseconds; a busy machine only ever adds."""

    def once() -> float:
        began = time.perf_counter()
        call()
        return (time.perf_counter() - began) * 1e6

    return min(once() for _ in range(_ATTEMPTS))
