"""Calendars agree with a walk, minute by minute, over days when the clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from duly.domain.triggers.calendars import Use, first_permitted, next_blocked
from duly.domain.triggers.moments import second_of
from duly.triggers import read_calendar

MINUTE = timedelta(minutes=1)
NAMES = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"]
CHANGES = [
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("Australia/Lord_Howe", "2026-04-05"),
    ("America/Santiago", "2026-09-06"),
    ("Pacific/Apia", "2011-12-30"),
    ("UTC", "2026-06-15"),
]


def clock(random: Random, low: int, high: int) -> tuple[str, int]:
    minutes = random.randint(low, high)
    return f"{minutes // 60:02}:{minutes % 60:02}", minutes


def a_calendar(random: Random, zone: str, day: datetime) -> tuple[dict[str, Any], Any]:
    """Make a calendar, and a function that says the plain way whether it covers a moment."""
    dates = [f"{day + timedelta(days=random.randint(-1, 2)):%Y-%m-%d}"] if random.random() < 0.5 else []
    start = day + timedelta(minutes=random.randint(-2000, 2000))
    window = (start, start + timedelta(minutes=random.randint(1, 1500)))
    weekly = []
    for _ in range(random.randint(0, 3)):
        (begin, low), name = clock(random, 0, 1400), random.choice(NAMES)
        end, high = clock(random, low + 1, 1440)
        weekly.append((name, begin, end, low, high))
    has_window = random.random() < 0.5

    def covers(moment: datetime) -> bool:
        local = moment.astimezone(ZoneInfo(zone))
        minute = local.hour * 60 + local.minute
        return (
            f"{local:%Y-%m-%d}" in dates
            or (has_window and window[0] <= moment < window[1])
            or any(NAMES[local.weekday()] == name and low <= minute < high for name, _, _, low, high in weekly)
        )

    shape = {
        "name": "c",
        "tz": zone,
        "dates": dates,
        "windows": [{"start": window[0].isoformat(), "end": window[1].isoformat()}] if has_window else [],
        "weekly": [{"days": name, "from": begin, "to": end} for name, begin, end, _, _ in weekly],
    }
    return shape, covers


@pytest.mark.parametrize(("zone", "around"), CHANGES)
def test_calendar_blocks_the_same_minutes_as_a_walk_around_clock_changes(zone: str, around: str):
    day = datetime.fromisoformat(around).replace(tzinfo=UTC)
    for seed in range(12):
        random = Random(f"{zone} {around} {seed}")
        shape, covers = a_calendar(random, zone, day)
        mode = random.choice(["exclude", "include"])
        use = Use(read_calendar(shape), mode)  # type: ignore[arg-type]
        moments = [day - timedelta(days=1) + number * MINUTE for number in range(3 * 1440)]
        blocked = [covers(moment) == (mode == "exclude") for moment in moments]
        assert [use.blocks(second_of(moment)) for moment in moments] == blocked, shape
        for index in random.sample(range(len(moments)), 60):
            check(use, moments, blocked, index)


def check(use: Use, moments: list[datetime], blocked: list[bool], index: int) -> None:
    second, last = second_of(moments[index]), second_of(moments[-1])
    permitted = first_permitted([use], second)
    if False in blocked[index:]:
        assert permitted == second_of(moments[blocked.index(False, index)])
    else:
        assert permitted is None or permitted > last
    if not blocked[index]:
        expected = second_of(moments[blocked.index(True, index)]) if True in blocked[index:] else last
        assert next_blocked([use], second, last) == expected
