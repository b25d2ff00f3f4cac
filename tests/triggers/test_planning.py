"""Plans for a due occurrence: on time, late, blocked, or the last of all; and which schedules share the answer."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import islice, pairwise
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from duly.domain.triggers.calendars import Use, blockers
from duly.domain.triggers.jitter import Jitter
from duly.domain.triggers.moments import second_of
from duly.domain.triggers.schedule import counting
from duly.domain.triggers.schedule.planning import (
    FirePlan,
    Skip,
    arm,
    cohort_of,
    cohort_text,
    moments_between,
    plan_fire,
    stored_shape,
    stretch,
)
from duly.domain.triggers.schedule.reading import load_schedule
from duly.domain.triggers.schedule.schedules import Fire, Misfire, Schedule
from duly.domain.triggers.zones import zones
from duly.triggers import Calendar, TriggerError, compile_schedule, read_calendar
from tests.triggers.shapes import random_moment
from tests.triggers.test_properties import a_trigger

FINEST = timedelta(microseconds=1)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
# A Monday.
NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
WEEKEND = read_calendar({"name": "weekend", "weekly": [{"days": "SAT,SUN", "from": "00:00", "to": "24:00"}]})
NIGHT = read_calendar(
    {"name": "night", "tz": "Europe/London", "weekly": [{"days": "MON-SUN", "from": "20:00", "to": "24:00"}]}
)
OFFICE = read_calendar({"name": "office", "weekly": [{"days": "MON-FRI", "from": "09:00", "to": "17:00"}]})
LUNCH = read_calendar({"name": "lunch", "weekly": [{"days": "MON-SUN", "from": "12:30", "to": "13:15"}]})
JUNE = read_calendar(
    {"name": "june", "windows": [{"start": "2026-06-20T11:00:00Z", "end": "2026-06-24T11:30:00Z"}]}
)  # fmt: skip
KNOWN = {calendar.name: calendar for calendar in (WEEKEND, NIGHT, OFFICE, LUNCH, JUNE)}
properties = settings(max_examples=150, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32)


def cron(expr: str, tz: str = "UTC") -> dict[str, Any]:
    return {"type": "cron", "expr": expr, "tz": tz}


def a_schedule(trigger: dict[str, Any], **parts: Any) -> Schedule:
    return compile_schedule({"trigger": trigger, **parts}, job_id="job", now=NOON - DAY, known_calendars=KNOWN)


def on_time(schedule: Schedule, scheduled_at: datetime) -> FirePlan:
    return plan_fire(schedule, scheduled_at, is_late=False, now=scheduled_at)


def late(schedule: Schedule, scheduled_at: datetime, now: datetime) -> FirePlan:
    return plan_fire(schedule, scheduled_at, is_late=True, now=now)


def a_random_schedule(random: Random) -> Schedule:
    """Any trigger, with bounds or without; the dense ones are seen most, as most can go wrong there."""
    start = random.choice([None, random_moment(random)])
    end = random.choice([None, random_moment(random)])
    return Schedule(a_trigger(random), start, end)


def a_blocked_schedule(random: Random) -> Schedule:
    """A trigger that fires some times a day, or each week, with one to three calendars around it."""
    expr = random.choice(["*/20 * * * *", "15 */3 * * *", "0 10 * * *", "30 19-22 * * *", "0 0 * * *", "0 12 * * SAT"])
    trigger = random.choice([
        cron(expr, random.choice(["UTC", "Europe/London", "Asia/Tokyo"])),
        {"type": "interval", "every": "PT37M", "anchor": "2026-06-01T00:00:00Z"},
        {"type": "any", "of": [cron(expr), cron("0,30 8-14 * * *")]},
    ])  # fmt: skip
    uses = [
        {"name": name, "mode": "include" if name == "office" else "exclude", "on_hit": random.choice(["skip", "defer"])}
        for name in random.sample(sorted(KNOWN), random.randint(1, 3))
    ]
    end = random.choice([{}, {"end": "2026-06-23T10:00:00Z"}])
    try:
        return a_schedule(trigger, calendars=uses, **end)
    except TriggerError:
        assume(False)  # The calendars leave it nothing.
        raise


def walked(schedule: Schedule, moment: datetime, count: int) -> list[Fire]:
    found: list[Fire] = []
    while len(found) < count and (fire := schedule.next_after(moment)) is not None:
        found.append(fire)
        moment = fire.scheduled_at
    return found


def times(schedule: Schedule, moment: datetime, count: int) -> list[datetime]:
    return [fire.scheduled_at for fire in walked(schedule, moment, count)]


def near_june(random: Random) -> datetime:
    return NOON + timedelta(minutes=random.randrange(14 * 1440))


# What a schedule is asked for: the last fire, and how many.


@properties
@given(seeds)
def test_the_latest_fire_is_the_last_of_a_walk(seed: int):
    random = Random(seed)
    schedule = a_random_schedule(random) if random.random() < 0.3 else a_blocked_schedule(random)
    fires = walked(schedule, near_june(random), 12)
    for fire, following in pairwise(fires):
        assert schedule.latest_at_or_before(fire.scheduled_at) == fire
        assert schedule.latest_at_or_before(following.scheduled_at - FINEST) == fire
        between = fire.scheduled_at + (following.scheduled_at - fire.scheduled_at) * random.random()
        assert schedule.latest_at_or_before(min(between, following.scheduled_at - FINEST)) == fire


def test_the_latest_fire_is_found_behind_a_long_block():
    years = read_calendar(
        {"name": "years", "windows": [{"start": "2020-01-01T00:00:00Z", "end": "2026-06-15T12:00:00Z"}]}
    )
    blocked = msgspec.structs.replace(a_schedule(cron("* * * * * *")), uses=(Use(years),))
    before = datetime(2019, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert blocked.latest_at_or_before(NOON - FINEST) == Fire(before)
    assert blocked.latest_at_or_before(NOON) == Fire(NOON)
    begun = msgspec.structs.replace(blocked, start=datetime(2020, 5, 1, tzinfo=UTC))
    assert begun.latest_at_or_before(NOON - FINEST) is None


@settings(max_examples=400, deadline=None, derandomize=True)
@given(seeds)
def test_a_count_is_the_length_of_a_walk(seed: int):
    random = Random(seed)
    schedule, start = a_random_schedule(random), random_moment(random)
    days = random.choice([1, 40, 400])
    end = start + timedelta(days=days, seconds=random.randrange(86_400))
    found = list(islice(counting.fires_between(schedule, start, end), 2000))
    assume(found)
    for until in (end if len(found) < 2000 else found[-1], found[-1], found[-1] + FINEST):
        assert counting.count_between(schedule, start, until) == sum(fire < until for fire in found)
    assert counting.count_between(schedule, found[0], found[-1]) == len(found) - 1


@pytest.mark.parametrize(
    ("expr", "zone", "around"),
    [
        ("0,20,40 2 * * *", "America/New_York", "2026-03-08T07:00:00Z"),
        ("0,30 2,3 * * *", "America/New_York", "2026-03-08T07:00:00Z"),
        ("*/20 * * * *", "America/New_York", "2026-03-08T07:00:00Z"),
        ("0,30 1,2 * * *", "America/New_York", "2026-11-01T06:00:00Z"),
        ("*/30 1 * * *", "America/New_York", "2026-11-01T06:00:00Z"),
        ("10,50 2,23 * * *", "Pacific/Apia", "2011-12-30T10:00:00Z"),
        ("15,45 1,2 * * *", "Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
    ],
)
def test_a_count_is_right_around_a_clock_change(expr: str, zone: str, around: str):
    schedule, middle = a_schedule(cron(expr, zone)), datetime.fromisoformat(around)
    fires = times(schedule, middle - 3 * DAY, 600)
    for minutes in range(-1500, 1500, 10):
        start = middle + minutes * MINUTE
        for length in (10 * MINUTE, HOUR, DAY):
            expected = sum(start <= fire < start + length for fire in fires)
            assert counting.count_between(schedule, start, start + length) == expected


@properties
@given(seeds)
def test_a_count_with_calendars_is_the_length_of_a_walk(seed: int):
    random = Random(seed)
    schedule, start = a_blocked_schedule(random), near_june(random)
    end = start + timedelta(minutes=random.randrange(10_000))
    fires = [fire for fire in times(schedule, start - FINEST, 2000) if fire < end]
    assert counting.count_between(schedule, start, end) == len(fires)
    assert moments_between(schedule, start, end, 5) == fires[:5]
    if fires:
        assert counting.count_between(schedule, fires[0], fires[-1] + FINEST) == len(fires)


@properties
@given(seeds)
def test_the_last_so_many_are_found_without_a_walk(seed: int):
    random = Random(seed)
    schedule = a_blocked_schedule(random) if random.random() < 0.5 else a_random_schedule(random)
    fires = times(schedule, near_june(random), 300)
    assume(fires)
    for limit in (1, 2, 7, len(fires) - 1, len(fires), len(fires) + 1, 1000):
        if limit:
            kept = fires[-limit:]
            assert counting.last_fires(schedule, fires[0], fires[-1], limit) == (kept[0], len(kept))


def test_the_last_so_many_of_a_dense_burst_long_ago():
    schedule = a_schedule(cron("* * 0 1 1 *"))
    first, last = datetime(2020, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 59, 59, tzinfo=UTC)
    assert counting.last_fires(schedule, first, last, 3600 + 60) == (datetime(2025, 1, 1, 0, 59, tzinfo=UTC), 3660)


# On time.


def test_on_time_it_runs_and_the_next_is_counted_from_it():
    schedule = a_schedule(cron("* * * * *"))
    plan = plan_fire(schedule, NOON, is_late=False, now=NOON + 5 * MINUTE)
    assert plan == FirePlan(NOON, 0, (), None, 0, NOON + MINUTE, 0)


def test_the_last_of_all_leaves_nothing_to_arm():
    schedule = a_schedule(cron("0 * * * *"), end="2026-06-15T13:00:00Z")
    assert on_time(schedule, NOON) == FirePlan(NOON, 0, (), None, 0, None, 0)
    assert late(schedule, NOON - HOUR, NOON + DAY).next_at is None
    assert late(schedule, NOON - HOUR, NOON + DAY).run_at == NOON
    assert arm(schedule, NOON) is None
    assert arm(schedule, NOON - FINEST) == (NOON, 0)


def test_jitter_window_is_cut_at_the_next_fire_or_calendar_block():
    each_hour = a_schedule(cron("0 * * * *"), jitter={"max": "PT5H"})
    assert on_time(each_hour, NOON).next_window == 3600
    seldom = a_schedule(cron("0 12 * * *"), jitter={"max": "PT5H"})
    assert on_time(seldom, NOON).next_window == 5 * 3600
    # The freeze begins at 11:00 on the 20th.
    frozen = a_schedule(cron("30 10 * * *"), jitter={"max": "PT5H"}, calendars=[{"name": "june"}])
    assert arm(frozen, NOON + 4 * DAY) == (datetime(2026, 6, 20, 10, 30, tzinfo=UTC), 30 * 60)


@properties
@given(seeds)
def test_the_due_moment_lies_in_the_window(seed: int):
    random = Random(seed)
    jitter = Jitter(random.choice([1, 600, 86_400]), random.choice(["job", "occurrence"]))
    schedule = msgspec.structs.replace(a_blocked_schedule(random), jitter=jitter)
    for fire in walked(schedule, near_june(random), 5):
        window = schedule.jitter_window(fire.scheduled_at)
        text = f"{fire.scheduled_at:%Y-%m-%dT%H:%M:%SZ}"
        source = "job" if jitter.per == "job" else f"job|{text}"
        hashed = int.from_bytes(sha256(source.encode()).digest()[:8], "big")
        assert 1 <= window <= jitter.max_seconds
        assert schedule.due_at(fire, "job") == fire.scheduled_at + timedelta(seconds=hashed * window >> 64)


def test_skips_by_a_calendar_are_recorded_with_the_next_fire():
    schedule = a_schedule(cron("0 9 * * *"), calendars=[{"name": "weekend"}])
    friday, monday = datetime(2026, 6, 19, 9, tzinfo=UTC), datetime(2026, 6, 22, 9, tzinfo=UTC)
    assert on_time(schedule, friday) == FirePlan(friday, 0, (), None, 0, monday, 0)
    blocked = Skip("skipped_calendar", friday + DAY, friday + 2 * DAY, 2)
    assert on_time(schedule, monday) == FirePlan(monday, 0, (blocked,), None, 0, monday + DAY, 0)


def test_deferred_occurrence_is_not_recorded_as_skipped():
    schedule = a_schedule(cron("0 9 * * *"), calendars=[{"name": "weekend", "on_hit": "defer"}])
    friday, monday = datetime(2026, 6, 19, 9, tzinfo=UTC), datetime(2026, 6, 22, tzinfo=UTC)
    assert on_time(schedule, friday).next_at == monday
    assert on_time(schedule, monday) == FirePlan(monday, 0, (), None, 0, monday + 9 * HOUR, 0)


def test_skips_of_a_long_block_are_recorded_for_400_days():
    schedule = a_schedule(cron("0 12 * * *"))
    first = read_calendar({"name": "f", "windows": [{"start": "2026-06-15T00:00:00Z", "end": "2036-01-01T00:00:00Z"}]})
    begun = msgspec.structs.replace(schedule, uses=(Use(first, "include"),))
    assert on_time(begun, NOON).skips == (Skip("skipped_calendar", NOON - 400 * DAY, NOON - DAY, 400),)


def taken_between(schedule: Schedule, previous: datetime, end: datetime) -> tuple[Skip, ...]:
    """Give what calendars took behind one fire and before a moment, found one by one."""
    taken = [
        at
        for at in schedule.trigger.between(*schedule.within(previous + FINEST, end))
        if any(use.on_hit == "skip" for use in blockers(schedule.uses, second_of(at)))
    ]
    return (Skip("skipped_calendar", taken[0], taken[-1], len(taken)),) if taken else ()


@properties
@given(seeds)
def test_each_occurrence_runs_or_is_recorded_once(seed: int):
    random = Random(seed)
    schedule = a_blocked_schedule(random)
    fires = times(schedule, near_june(random), 10)
    assume(len(fires) > 1)
    plans = [on_time(schedule, fire) for fire in fires]
    assert [plan.next_at for plan in plans[:-1]] == fires[1:]
    for previous, plan in zip(fires, plans[1:], strict=False):
        assert plan.run_at is not None
        expected = taken_between(schedule, previous, plan.run_at)
        if plan.next_at is None:
            expected += taken_between(schedule, plan.run_at, schedule.end or plan.run_at + timedelta(days=400))
        assert plan.skips == expected


# Late.


def test_six_hours_down_are_one_run_for_the_latest():
    schedule = a_schedule(cron("* * * * *"))
    plan = late(schedule, NOON, NOON + 6 * HOUR - FINEST)
    older = Skip("skipped_misfire", NOON, NOON + 358 * MINUTE, 359)
    assert plan == FirePlan(NOON + 359 * MINUTE, 360, (older,), None, 0, NOON + 6 * HOUR, 0)
    plan = late(schedule, NOON, NOON + 6 * HOUR)
    older = Skip("skipped_misfire", NOON, NOON + 359 * MINUTE, 360)
    assert plan == FirePlan(NOON + 6 * HOUR, 361, (older,), None, 0, NOON + 361 * MINUTE, 0)


def test_single_late_occurrence_counts_as_a_single_missed_occurrence():
    schedule = a_schedule(cron("0 12 * * *"))
    assert late(schedule, NOON, NOON + HOUR) == FirePlan(NOON, 1, (), None, 0, NOON + DAY, 0)


def test_a_window_drops_even_the_latest():
    schedule = a_schedule(cron("0 12 * * *"), misfire={"window": "PT1H"})
    assert late(schedule, NOON, NOON + HOUR).run_at == NOON
    dropped = Skip("skipped_misfire", NOON - DAY, NOON, 2)
    plan = late(schedule, NOON - DAY, NOON + HOUR + FINEST)
    assert plan == FirePlan(None, 0, (dropped,), None, 0, NOON + DAY, 0)


def test_skipped_misfires_are_recorded_and_the_next_fire_stays():
    schedule = a_schedule(cron("*/10 * * * *"), misfire={"policy": "skip"})
    skipped = Skip("skipped_misfire", NOON, NOON + HOUR, 7)
    assert late(schedule, NOON, NOON + 65 * MINUTE) == FirePlan(
        None, 0, (skipped,), None, 0, NOON + 70 * MINUTE, 0
    )  # fmt: skip


def test_catch_up_fires_the_latest_occurrences_within_window_and_limit():
    schedule = a_schedule(cron("0 * * * *"), misfire={"policy": "fire_all", "window": "PT10H", "limit": 4})
    now = NOON + 20 * HOUR
    plan = late(schedule, NOON, now)
    # Ten hours back is still within the window.
    too_old = Skip("skipped_misfire", NOON, NOON + 9 * HOUR, 10)
    too_many = Skip("skipped_limit", NOON + 10 * HOUR, NOON + 16 * HOUR, 7)
    kept = (NOON + 17 * HOUR, now + FINEST)
    assert plan == FirePlan(None, 0, (too_old, too_many), kept, 4, NOON + 21 * HOUR, 0)
    assert moments_between(schedule, *kept, 100) == [NOON + hour * HOUR for hour in (17, 18, 19, 20)]


def test_catch_up_within_the_limit_skips_nothing():
    schedule = a_schedule(cron("0 * * * *"), misfire={"policy": "fire_all", "limit": 3})
    plan = late(schedule, NOON, NOON + 2 * HOUR)
    assert plan == FirePlan(None, 0, (), (NOON, NOON + 2 * HOUR + FINEST), 3, NOON + 3 * HOUR, 0)


def test_catching_up_looks_back_a_day_by_default():
    schedule = msgspec.structs.replace(a_schedule(cron("0 * * * *")), misfire=Misfire("fire_all"))
    plan = late(schedule, NOON, NOON + 2 * DAY)
    assert plan.skips == (Skip("skipped_misfire", NOON, NOON + 23 * HOUR, 24),)
    assert (plan.catch_up, plan.catch_up_count) == ((NOON + DAY, NOON + 2 * DAY + FINEST), 25)


def test_catch_up_skips_occurrences_older_than_the_window():
    schedule = a_schedule(cron("0 12 * * MON"), misfire={"policy": "fire_all"})
    plan = late(schedule, NOON, NOON + 3 * DAY)
    assert plan == FirePlan(None, 0, (Skip("skipped_misfire", NOON, NOON, 1),), None, 0, NOON + 7 * DAY, 0)


@pytest.mark.parametrize(("policy", "runs"), [("fire_once", True), ("fire_all", True), ("skip", False)])
def test_a_one_shot_fires_late_unless_it_is_to_be_skipped(policy: str, runs: bool):
    schedule = a_schedule({"type": "at", "at": "2026-06-15T12:00:00.250Z"}, misfire={"policy": policy})
    at = NOON + timedelta(milliseconds=250)
    skipped = Skip("skipped_misfire", at, at, 1)
    expected = FirePlan(at, 1, (), None, 0, None, 0) if runs else FirePlan(None, 0, (skipped,), None, 0, None, 0)
    assert late(schedule, at, at + 5 * HOUR) == expected


def test_a_missed_hour_that_the_clock_jumps_over_is_one_fire():
    schedule = a_schedule(cron("0,30 2 * * *", "America/New_York"))
    jump = datetime(2027, 3, 14, 7, tzinfo=UTC)
    plan = late(schedule, jump - DAY, jump + HOUR)
    assert (plan.run_at, plan.missed, plan.next_at) == (jump, 3, jump + DAY - HOUR)
    assert plan.skips == (Skip("skipped_misfire", jump - DAY, jump - DAY + 30 * MINUTE, 2),)


def test_a_missed_weekend_counts_no_blocked_fires_as_missed():
    schedule = a_schedule(cron("0 9,18 * * *"), calendars=[{"name": "weekend"}])
    friday = datetime(2026, 6, 19, 9, tzinfo=UTC)
    plan = late(schedule, friday, friday + 3 * DAY + HOUR)
    blocked = Skip("skipped_calendar", friday + DAY, friday + 2 * DAY + 9 * HOUR, 4)
    older = Skip("skipped_misfire", friday, friday + 9 * HOUR, 2)
    assert plan == FirePlan(friday + 3 * DAY, 3, (blocked, older), None, 0, friday + 3 * DAY + 9 * HOUR, 0)


def test_armed_occurrence_still_fires_after_the_schedule_drops_it():
    schedule = a_schedule(cron("0 12 * * *"))
    armed = NOON + HOUR
    assert late(schedule, armed, armed + HOUR) == FirePlan(armed, 1, (), None, 0, NOON + DAY, 0)
    skipping = a_schedule(cron("0 12 * * *"), misfire={"policy": "skip"})
    assert late(skipping, armed, armed + HOUR).skips == (Skip("skipped_misfire", armed, armed, 1),)
    older = (Skip("skipped_misfire", armed, armed, 1),)
    assert late(schedule, armed, NOON + DAY) == FirePlan(NOON + DAY, 2, older, None, 0, NOON + 2 * DAY, 0)


@properties
@given(seeds)
def test_every_missed_fire_runs_or_is_recorded_once(seed: int):
    random = Random(seed)
    schedule = a_blocked_schedule(random) if random.random() < 0.6 else a_random_schedule(random)
    window = random.choice([None, 3600, 86_400])
    misfire = Misfire(random.choice(["fire_once", "fire_all", "skip"]), 60, window, 1, random.choice([1, 3, 1000]))
    schedule = msgspec.structs.replace(schedule, misfire=misfire)
    fires = times(schedule, near_june(random), random.randint(2, 60))
    assume(len(fires) > 1)
    now = fires[-2] + (fires[-1] - fires[-2]) * random.random()
    assume(now < fires[-1])
    plan, missed = late(schedule, fires[0], now), fires[:-1]
    assert plan.next_at == fires[-1]
    skipped = [
        fire
        for skip in plan.skips
        if skip.reason != "skipped_calendar"
        for fire in accounted(skip, [fire for fire in missed if skip.first <= fire <= skip.last])
    ]
    caught_up = moments_between(schedule, *plan.catch_up, 2000) if plan.catch_up else []
    assert len(caught_up) == plan.catch_up_count <= misfire.limit
    assert [*skipped, *caught_up, *([plan.run_at] if plan.run_at else [])] == missed
    assert plan.missed == (len(missed) if plan.run_at else 0)
    oldest = now - timedelta(seconds=window or (86_400 if misfire.policy == "fire_all" else 10**9))
    assert all(fire >= oldest for fire in [*caught_up, *([plan.run_at] if plan.run_at else [])])


def accounted(skip: Skip, fires: list[datetime]) -> list[datetime]:
    assert (skip.first, skip.last, skip.count) == (fires[0], fires[-1], len(fires))
    return fires


@pytest.mark.parametrize("policy", ["fire_once", "fire_all", "skip"])
@pytest.mark.parametrize(
    "trigger",
    [
        cron("* * * * * *"),
        cron("0-59 0-59 0-23 * * *", "Europe/London"),
        {"type": "interval", "every": "PT1S", "anchor": "2026-01-01T00:00:00Z"},
        {"type": "any", "of": [cron(f"{number}-59 * * * * *") for number in range(3)]},
        {
            "type": "rrule",
            "rrule": "FREQ=DAILY;BYHOUR="
            + ",".join(map(str, range(24)))
            + ";BYMINUTE="
            + ",".join(map(str, range(60))),
            "dtstart": "2026-01-01T00:00:00Z",
        },
    ],
    ids=["wildcard", "fixed", "interval", "any", "rrule"],
)
def test_a_year_of_downtime_takes_no_time(trigger: dict[str, Any], policy: str):
    schedule = a_schedule(trigger, misfire={"policy": policy})
    blocked = a_schedule(trigger, misfire={"policy": policy}, calendars=[{"name": "office", "mode": "include"}])
    for each in (schedule, blocked):
        began = time.perf_counter()
        plan = late(each, NOON, NOON + 365 * DAY)
        assert time.perf_counter() - began < 5  # Some tenths on a quiet core.
        assert sum(skip.count for skip in plan.skips) >= counting.COUNT_MAX // 3


def test_a_year_of_seconds_is_counted_to_the_last():
    plan = late(a_schedule(cron("* * * * * *", "Europe/London")), NOON, NOON + 365 * DAY)
    assert plan.missed == 365 * 86_400 + 1


# Stretches asked for by name.


def test_skipped_stretch_includes_both_ends_and_excludes_calendar_blocks():
    schedule = a_schedule(cron("0 * * * *"))
    assert stretch(schedule, NOON, NOON + 3 * HOUR, "skipped_paused") == Skip(
        "skipped_paused", NOON, NOON + 3 * HOUR, 4
    )
    weekdays = a_schedule(cron("0 9 * * *"), calendars=[{"name": "weekend"}])
    friday = datetime(2026, 6, 19, 9, tzinfo=UTC)
    assert stretch(weekdays, friday, friday + 3 * DAY, "skipped_paused").count == 2


def test_moments_have_their_start_and_not_their_end():
    schedule = a_schedule(cron("0 * * * *"), end="2026-06-15T15:00:00Z")
    assert moments_between(schedule, NOON, NOON + 2 * HOUR, 10) == [NOON, NOON + HOUR]
    assert moments_between(schedule, NOON, NOON + 9 * HOUR, 10) == [NOON, NOON + HOUR, NOON + 2 * HOUR]
    assert moments_between(schedule, NOON, NOON + 9 * HOUR, 1) == [NOON]


# Cohorts, and what the store keeps.

SHAPES: list[dict[str, Any]] = [
    {"type": "at", "at": "2026-12-24T09:00:00.500Z"},
    {"type": "at", "at": "2026-12-24T09:00", "tz": "Europe/London"},
    cron("H H(1-5) * * MON", "Europe/London"),
    cron("@daily"),
    {"type": "interval", "every": "PT5M"},
    {"type": "interval", "every": "PT5M", "mode": "fixed_delay"},
    {"type": "iso8601", "text": "R5/2026-08-31T09:00:00Z/P1M", "tz": "Europe/Paris"},
    {"type": "iso8601", "text": "R/2026-08-31T09:00:00Z/PT90M"},
    {"type": "rrule", "rrule": "FREQ=WEEKLY;BYDAY=MO", "dtstart": "2026-06-01T09:00:00", "tz": "Europe/Paris"},
    {"type": "text", "text": "in 20 minutes"},
    {"type": "text", "text": "every 7 minutes"},
    {"type": "any", "of": [cron("H 9 * * *"), {"type": "text", "text": "hourly"}]},
]


@pytest.mark.parametrize("trigger", SHAPES, ids=lambda trigger: f"{trigger['type']}-{len(str(trigger))}")
def test_stored_schedule_loads_to_the_same_schedule(trigger: dict[str, Any]):
    shape = {
        "trigger": trigger,
        "start": "2026-06-15T00:00:00+02:00",
        "end": None,
        "max_runs": 7,
        "jitter": {"max": "PT1M", "per": "occurrence"},
        "misfire": {"policy": "fire_all", "grace": "PT5S"},
        "overlap": {"policy": "queue"},
        "calendars": [{"name": "night"}, {"name": "office", "mode": "include", "on_hit": "defer"}],
        "pause_on_failure": 3,
    }
    if trigger.get("mode") == "fixed_delay":  # which refuses what means nothing to it
        shape = {key: value for key, value in shape.items() if key in ("trigger", "start", "end", "max_runs")}
    schedule = compile_schedule(shape, job_id="job", now=NOON, known_calendars=KNOWN)
    stored = msgspec.json.decode(msgspec.json.encode(stored_shape(shape, schedule)))
    loaded = load_schedule(stored, KNOWN)
    assert loaded.trigger.canonical == stored["trigger"] == schedule.trigger.canonical
    assert stored.get("requested", stored["trigger"]) == trigger
    assert cohort_text(loaded) == cohort_text(schedule)
    assert cohort_of(loaded) == cohort_of(schedule)
    without_trigger = {"trigger": schedule.trigger}
    assert msgspec.structs.replace(loaded, **without_trigger) == schedule
    assert times(loaded, NOON, 5) == times(schedule, NOON, 5)
    assert stored_shape(stored, loaded) == stored


def test_requested_trigger_is_stored_only_if_the_canonical_form_differs():
    plain: dict[str, Any] = {"trigger": cron("0 2 * * *"), "max_runs": 3}
    assert stored_shape(plain, a_schedule(**plain)) == plain
    words = {"type": "text", "text": "every day at 2am"}
    assert stored_shape({"trigger": words}, a_schedule(words)) == {"trigger": cron("0 2 * * *"), "requested": words}


def test_a_stored_schedule_loads_when_its_time_is_over():
    past = {"trigger": {"type": "at", "at": "2001-01-01T00:00:00Z"}}
    assert load_schedule(past, {}).next_after(NOON) is None
    ended = {"trigger": cron("0 9 * * *"), "start": "2001-01-02T00:00:00Z", "end": "2001-01-01T00:00:00Z"}
    assert load_schedule(ended, {}).next_after(NOON) is None
    blocked = {"trigger": cron("0 21 * * *", "Europe/London"), "calendars": [{"name": "night"}]}
    assert load_schedule(blocked, KNOWN).next_after(NOON) is None


def test_local_bounds_are_stored_as_the_moments_they_were():
    shape: dict[str, Any] = {
        "trigger": cron("0 9 * * *", "Europe/Paris"),
        "start": "2026-07-01T00:00",
        "end": "2026-08-01T00:00",
    }
    stored = stored_shape(shape, a_schedule(**shape))
    assert (stored["start"], stored["end"]) == ("2026-06-30T22:00:00Z", "2026-07-31T22:00:00Z")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"trigger": cron("0 2 * * *")}, {"trigger": {"type": "text", "text": "every day at 2am"}}),
        (
            {"trigger": cron("0 2 * * *", "Asia/Tokyo")},
            {"trigger": {"type": "text", "text": "Every day at 2am", "tz": "Asia/Tokyo"}},
        ),
        ({"trigger": cron("CRON_TZ=Asia/Tokyo 00 02 * * ?", "Asia/Tokyo")}, {"trigger": cron("0 2 * * *", "Asia/Tokyo")}),
        ({"trigger": cron("0 2 * * *")}, {"trigger": cron("0 2 * * *"), "misfire": {"policy": "fire_once"}}),
        ({"trigger": cron("0 2 * * *")}, {"trigger": cron("0 2 * * *"), "max_runs": 3, "overlap": {"policy": "queue"}}),
        (
            {"trigger": cron("0 2 * * *"), "start": "2026-07-01T00:00:00Z"},
            {"trigger": cron("0 2 * * *"), "start": "2026-07-01T02:00:00+02:00"},
        ),
        (
            {"trigger": cron("0 2 * * *"), "calendars": [{"name": "june"}, {"name": "weekend"}]},
            {"trigger": cron("0 2 * * *"), "calendars": [{"name": "weekend", "on_hit": "skip"}, {"name": "june"}]},
        ),
    ],
)  # fmt: skip
def test_spellings_of_one_schedule_share_a_cohort(one: dict[str, Any], other: dict[str, Any]):
    assert cohort_of(a_schedule(**one)) == cohort_of(a_schedule(**other))


def test_schedules_that_fire_differently_have_different_cohorts():
    trigger = cron("0 2 * * *")
    schedules = [
        a_schedule(trigger),
        a_schedule(cron("1 2 * * *")),
        a_schedule(cron("0 2 * * *", "Asia/Tokyo")),
        a_schedule(trigger, start="2026-07-01T00:00:00Z"),
        a_schedule(trigger, end="2026-07-01T00:00:00Z"),
        a_schedule(trigger, jitter={"max": "PT1M"}),
        a_schedule(trigger, jitter={"max": "PT1M", "per": "occurrence"}),
        a_schedule(trigger, misfire={"policy": "skip"}),
        a_schedule(trigger, misfire={"grace": "PT61S"}),
        a_schedule(trigger, misfire={"window": "PT1H"}),
        a_schedule(trigger, misfire={"limit": 5}),
        a_schedule(trigger, calendars=[{"name": "weekend"}]),
        a_schedule(trigger, calendars=[{"name": "weekend", "on_hit": "defer"}]),
        a_schedule(trigger, calendars=[{"name": "weekend", "mode": "include"}]),
        a_schedule(trigger, calendars=[{"name": "june"}]),
    ]
    cohorts = {cohort_of(schedule) for schedule in schedules}
    assert len(cohorts) == len(schedules)
    assert all(0 <= cohort < 2**62 for cohort in cohorts)


@pytest.mark.parametrize(
    "changed",
    [
        {"tz": "Asia/Tokyo"},
        {"dates": ["2026-12-25"]},
        {"windows": [{"start": "2026-07-01T00:00:00Z", "end": "2026-07-02T00:00:00Z"}]},
        {"weekly": [{"days": "SAT", "from": "00:00", "to": "24:00"}]},
    ],
    ids=["tz", "dates", "windows", "weekly"],
)
def test_a_calendar_that_changes_makes_another_cohort(changed: dict[str, Any]):
    shape = {"trigger": cron("0 2 * * *"), "calendars": [{"name": "c"}]}
    given_before: dict[str, Any] = {"name": "c", "weekly": [{"days": "SUN", "from": "00:00", "to": "24:00"}]}
    before: dict[str, Calendar] = {"c": read_calendar(given_before)}
    after: dict[str, Calendar] = {"c": read_calendar(given_before | changed)}
    assert cohort_of(load_schedule(shape, before)) != cohort_of(load_schedule(shape, after))
    assert cohort_of(load_schedule(shape, before)) == cohort_of(
        load_schedule(shape, {"c": read_calendar(given_before)})
    )


def test_the_number_of_a_cohort_is_62_bits_of_its_text(monkeypatch):
    schedule = a_schedule(cron("0 2 * * *"))
    bits = f"{int.from_bytes(sha256(cohort_text(schedule).encode()).digest(), 'big'):0256b}"
    assert cohort_of(schedule) == int(bits[:62], 2)
    before = cohort_of(schedule)
    monkeypatch.setattr(zones, "database_version", lambda: "2199a")
    assert cohort_of(schedule) != before


def test_a_fire_on_time_costs_little_more_than_its_next_moment():
    schedule = a_schedule(cron("* * * * *"))

    def seconds(call: Any) -> float:
        began = time.perf_counter()
        for _ in range(100):
            call()
        return time.perf_counter() - began

    # Short and in turn, so that a busy machine leaves some of each alone.
    rounds = [
        (
            seconds(lambda: schedule.trigger.next_after(NOON)),
            seconds(lambda: plan_fire(schedule, NOON, is_late=False, now=NOON)),
        )
        for _ in range(100)
    ]
    asked, planned = (min(each) for each in zip(*rounds, strict=True))
    assert planned < 2.5 * asked
