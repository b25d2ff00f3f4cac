"""A second opinion on cron: it walks time step by step and looks at the clock on the wall.

It shares no code with the evaluator: it has its own reading of the grammar, into plain sets, and its own zone arithmetic,
which is zoneinfo's. It is slow and simple on purpose.
"""

from __future__ import annotations

import calendar
import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

NAMES = {
    "month": dict(
        zip(
            ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
            range(1, 13),
            strict=True,
        )
    ),
    "dow": dict(zip(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"], range(7), strict=True)),
}
LIMITS = {"second": (0, 59), "minute": (0, 59), "hour": (0, 23), "dom": (1, 31), "month": (1, 12), "dow": (0, 6)}
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * SUN",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Oracle:
    """An expression in a zone, understood the slow way."""

    def __init__(self, text: str, zone: str, job_id: str = "") -> None:
        self.zone = ZoneInfo(zone)
        self.job_id = job_id
        words = MACROS.get(text.lower(), text).upper().split()
        if len(words) == 5:
            words.insert(0, "0")
        self.second, self.minute, self.hour = (
            self.numbers(name, word) for name, word in zip(("second", "minute", "hour"), words, strict=False)
        )
        self.months = self.numbers("month", words[4])
        self.dom, self.dow = words[3], words[5].lstrip("+")
        self.both = words[5].startswith("+")
        self.is_wildcard = words[1].startswith("*") or words[2].startswith("*")
        self.day_matches = lru_cache(maxsize=None)(self.look_at_day)

    def numbers(self, name: str, word: str) -> set[int]:
        found: set[int] = set()
        for item in word.split(","):
            found |= self.item(name, item)
        return found

    def item(self, name: str, item: str) -> set[int]:
        low, high = LIMITS[name]
        head, _, step = item.partition("/")
        if head.startswith("H"):
            return self.hashed(name, head, step)
        if head in "*?":
            first, last = low, high
        elif "-" in head:
            left, right = head.split("-")
            first, last = self.number(name, left), 7 if right == "SUN" else self.number(name, right)
        else:
            first = self.number(name, head)
            if name == "dow" and first == 7:
                first = 0
            last = high if step else first
        return {value % 7 if name == "dow" else value for value in range(first, last + 1, int(step or 1))}

    def hashed(self, name: str, head: str, step: str) -> set[int]:
        low, high = LIMITS[name]
        if name == "dom":
            high = 28
        if "(" in head:
            low, high = (self.number(name, part) for part in head[2:-1].split("-"))
        number = int(hashlib.sha256(f"{self.job_id}/{name}".encode()).hexdigest()[:16], 16)
        if not step:
            return {low + number % (high - low + 1)}
        return set(range(low + number % int(step), high + 1, int(step)))

    def number(self, name: str, text: str) -> int:
        return int(text) if text.isdigit() else NAMES[name][text]

    def look_at_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_month, by_week = self.by_month(day), self.by_week(day)
        free = ("*", "?", "*/1")
        if self.dom in free or self.dow in free:
            return (self.dom in free or by_month) and (self.dow in free or by_week)
        return by_month and by_week if self.both else by_month or by_week

    def by_month(self, day: date) -> bool:
        last = calendar.monthrange(day.year, day.month)[1]
        for item in self.dom.split(","):
            if item == "L" and day.day == last:
                return True
            if item.startswith("L-") and day.day == last - int(item[2:]):
                return True
            if item.endswith("W") and day == nearest_weekday(day, item[:-1], last):
                return True
            if item[0] != "L" and item[-1] != "W" and day.day in self.item("dom", item):
                return True
        return False

    def by_week(self, day: date) -> bool:
        weekday = (day.weekday() + 1) % 7
        for item in self.dow.split(","):
            if "#" in item or (item[-1] == "L" and item[:-1]):
                name, _, which = item.partition("#")
                name = name if which else name[:-1]
                if weekday != self.number("dow", name) % 7:
                    continue
                is_last = (day + timedelta(days=7)).month != day.month
                if is_last if which in ("", "L") else (day.day - 1) // 7 + 1 == int(which):
                    return True
            elif weekday in self.item("dow", item):
                return True
        return False

    def shows(self, wall: datetime) -> bool:
        """Tell whether the expression names this reading of the clock."""
        return (
            wall.minute in self.minute
            and wall.hour in self.hour
            and wall.second in self.second
            and self.day_matches(wall.date())
        )

    def fires(self, walls: list[tuple[datetime, datetime]], step: timedelta) -> Iterator[datetime]:
        """Walk through (moment, reading of the clock) pairs and give the moments at which it fires.

        The walk must begin at a quiet time: no clock change in the day before it.
        """
        names = self.shows
        if self.is_wildcard:
            yield from (moment for moment, wall in walls if names(wall))
            return
        latest = walls[0][1] - step
        for moment, wall in walls:
            if wall <= latest:
                continue  # Seen before: the clock went back.
            if wall == latest + step:
                if names(wall):
                    yield moment
            elif any(names(jumped) for jumped in readings(latest + step, wall + step, step)):
                yield moment
            latest = wall


def readings(start: datetime, end: datetime, step: timedelta) -> Iterator[datetime]:
    while start < end:
        yield start
        start += step


def nearest_weekday(day: date, text: str, last: int) -> date | None:
    if text == "L":
        target = date(day.year, day.month, last)
        while target.weekday() > 4:
            target -= timedelta(days=1)
        return target
    if int(text) > last:
        return None
    target = date(day.year, day.month, int(text))
    for distance in (0, -1, 1, -2, 2):
        near = target + timedelta(days=distance)
        if near.month == target.month and near.weekday() < 5:
            return near
    raise AssertionError(day)


def walk(zone: str, start: datetime, end: datetime, step: timedelta) -> list[tuple[datetime, datetime]]:
    """Pair each moment with what a clock in the zone shows."""
    clock = ZoneInfo(zone)
    return [(moment, moment.astimezone(clock).replace(tzinfo=None)) for moment in readings(start, end, step)]


def changes(zone: str, first_year: int, last_year: int) -> list[datetime]:
    """Find the moments when the zone's clocks change, by looking every three hours and then closer."""
    clock = ZoneInfo(zone)

    def offset(moment: datetime) -> timedelta:
        found = moment.astimezone(clock).utcoffset()
        assert found is not None
        return found

    found, step = [], timedelta(hours=3)
    moment = datetime(first_year, 1, 1, tzinfo=UTC)
    while moment.year <= last_year:
        if offset(moment) != offset(moment + step):
            found.append(narrow(moment, moment + step, offset))
        moment += step
    return found


def narrow(low: datetime, high: datetime, offset: Callable[[datetime], timedelta]) -> datetime:
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) / 2
        middle = middle.replace(microsecond=0)
        if offset(middle) == offset(low):
            low = middle
        else:
            high = middle
    return high
