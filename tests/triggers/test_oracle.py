"""Cron agrees with an oracle that walks the clock: around clock changes, in random weeks, to the minute and the second."""

from __future__ import annotations

import calendar
import zlib
from datetime import UTC, date, datetime, timedelta
from functools import cache
from random import Random

import pytest

from duly.domain.triggers.cron.expression import Cron, compile_cron
from duly.domain.triggers.errors import TriggerError
from tests.triggers.expressions import ZONES, random_expression
from tests.triggers.oracle import Oracle, changes, walk

MINUTE, SECOND, DAY = timedelta(minutes=1), timedelta(seconds=1), timedelta(days=1)
JOB = "01920000-0000-7000-8000-000000000001"
# What people write, beside what chance gives.
USUAL = (
    "30 2 * * *",
    "*/30 2 * * *",
    "0 * * * *",
    "*/15 * * * *",
    "0 0 * * *",
    "15,45 0-3 * * *",
    "0 12 30 12 *",
    "59 23 * * *",
)
QUIET_DAYS = 2  # The oracle's walk begins this long before what is compared, so that it has seen the changes before.


@cache
def changes_of(zone: str) -> tuple[datetime, ...]:
    return tuple(changes(zone, 2007, 2037))


def an_expression(random: Random, *, has_seconds: bool) -> str:
    while True:
        text = random_expression(random, has_seconds=has_seconds)
        try:
            compile_cron(text, "UTC", JOB)
        except TriggerError as error:
            if error.code not in ("CRON_NEVER_FIRES", "CRON_STEP"):
                raise
        else:
            return text


def fires(cron: Cron, start: datetime, end: datetime) -> list[datetime]:
    return list(cron.between(start, end))


def fires_backwards(cron: Cron, start: datetime, end: datetime) -> list[datetime]:
    found = []
    moment = cron.latest_at_or_before(end - SECOND)
    while moment is not None and moment >= start:
        found.append(moment)
        moment = cron.latest_at_or_before(moment - SECOND)
    return found[::-1]


def compare(zone: str, start: datetime, end: datetime, step: timedelta, texts: list[str]) -> None:
    walls = walk(zone, start - QUIET_DAYS * DAY if step == MINUTE else start, end, step)
    for text in texts:
        cron = compile_cron(text, zone, JOB)
        expected = [moment for moment in Oracle(text, zone, JOB).fires(walls, step) if moment >= start]
        assert fires(cron, start, end) == expected, (text, zone, start)
        assert fires_backwards(cron, start, end) == expected, (text, zone, start)
        for moment in probes(zone, start, end):
            after = next((fire for fire in expected if fire > moment), None)
            before = next((fire for fire in reversed(expected) if fire <= moment), None)
            assert after is None or cron.next_after(moment) == after, (text, zone, moment)
            assert before is None or cron.latest_at_or_before(moment) == before, (text, zone, moment)


def probes(zone: str, start: datetime, end: datetime) -> list[datetime]:
    """Choose moments to ask at: on both sides of a clock change, within what it repeats, and by chance."""
    near = [change for change in changes_of(zone) if start < change < end]
    steps = [timedelta(seconds=seconds) for seconds in (-1800, -1, 0, 1, 900, 1800, 3599, 3600, 5400)]
    random = seeded("probes", zone, start)
    chosen = [start + (end - start) * random.random() for _ in range(10)]
    return [moment for moment in [change + step for change in near for step in steps] + chosen if start <= moment < end]


def around(change: datetime) -> tuple[datetime, datetime]:
    middle = change.replace(second=0)
    return middle - 1.5 * DAY, middle + 1.5 * DAY


def seeded(*parts: object) -> Random:
    return Random(zlib.crc32(repr(parts).encode()))


@pytest.mark.parametrize("zone", ZONES)
def test_sampled_clock_changes_to_the_minute(zone: str):
    random = seeded("changes", zone)
    found = changes_of(zone)
    for change in random.sample(found, min(3, len(found))):
        texts = [random.choice(USUAL)] + [an_expression(random, has_seconds=False) for _ in range(3)]
        compare(zone, *around(change), MINUTE, texts)


@pytest.mark.parametrize("zone", ["Australia/Lord_Howe", "America/New_York", "Africa/Casablanca", "America/Santiago"])
def test_a_sampled_clock_change_to_the_second(zone: str):
    random = seeded("seconds", zone)
    change = random.choice(changes_of(zone))
    texts = ["*/20 30 2 * * *", "0,30 */10 0-3 * * *"] + [an_expression(random, has_seconds=True) for _ in range(4)]
    compare(zone, change - timedelta(hours=3), change + timedelta(hours=3), SECOND, texts)


def test_sampled_random_weeks():
    random = Random(1)
    for _ in range(20):
        a_random_week(random)


def a_random_week(random: Random) -> None:
    start = datetime(2007, 1, 1, tzinfo=UTC) + timedelta(
        days=random.randrange(31 * 365), minutes=random.randrange(1440)
    )
    texts = [an_expression(random, has_seconds=False) for _ in range(3)]
    compare(random.choice(ZONES), start, start + 7 * DAY, MINUTE, texts)


@pytest.mark.parametrize(
    ("zone", "day"),
    [("Pacific/Apia", "2011-12-30"), ("Pacific/Fakaofo", "2011-12-30"), ("America/Santiago", "2019-09-08")],
)
def test_a_day_without_midnight_or_without_anything(zone: str, day: str):
    start = datetime.fromisoformat(day).replace(tzinfo=UTC) - 1.5 * DAY
    compare(
        zone, start, start + 3 * DAY, MINUTE, [*USUAL, "0 0 30 * *", "30 10 30 12 *", "0 10 * * FRI", "*/20 * 30 * *"]
    )


SPECIAL_DAYS = ["L", "LW", *(f"L-{n}" for n in range(1, 31)), *(f"{n}W" for n in range(1, 32))]
SPECIAL_WEEKDAYS = [f"{day}#{which}" for day in range(8) for which in (1, 2, 3, 4, 5, "L")] + [
    f"{day}L" for day in range(8)
]


def a_month_of_each_shape() -> dict[tuple[int, int], date]:
    months = [date(year, month, 1) for year in range(2000, 2028) for month in range(1, 13)]
    return {(month.weekday(), calendar.monthrange(month.year, month.month)[1]): month for month in months}


@pytest.mark.parametrize("days", [f"{day} * *" for day in SPECIAL_DAYS] + [f"* * {day}" for day in SPECIAL_WEEKDAYS])
def test_special_days_in_every_shape_of_month(days: str):
    cron, oracle = compile_cron(f"0 0 {days}", None, None), Oracle(f"0 0 {days}", "UTC")
    shapes = a_month_of_each_shape()
    assert len(shapes) == 28
    for (_, length), month in shapes.items():
        expected = [day for day in range(1, length + 1) if oracle.look_at_day(month.replace(day=day))]
        start = datetime(month.year, month.month, 1, tzinfo=UTC)
        assert [fire.day for fire in cron.between(start, start + length * DAY)] == expected, month


@pytest.mark.proof
@pytest.mark.parametrize("zone", ZONES)
def test_every_clock_change_to_the_minute(zone: str):
    random = seeded("all changes", zone)
    for change in changes_of(zone):
        compare(zone, *around(change), MINUTE, [*USUAL, *(an_expression(random, has_seconds=False) for _ in range(6))])


@pytest.mark.proof
@pytest.mark.parametrize("zone", ZONES)
def test_clock_changes_to_the_second(zone: str):
    random = seeded("all seconds", zone)
    found = changes_of(zone)
    for change in random.sample(found, min(4, len(found))):
        compare(zone, *around(change), SECOND, [an_expression(random, has_seconds=True) for _ in range(4)])


@pytest.mark.proof
def test_a_thousand_random_weeks():
    random = Random(2)
    for _ in range(1000):
        a_random_week(random)
