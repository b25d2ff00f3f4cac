"""ISO 8601 repetitions: `R5/2026-01-31T09:00:00Z/P1M`, each occurrence counted from the start."""

from __future__ import annotations

import re
from typing import Any

from duly.domain.counting import some
from duly.domain.triggers import periods, stamps
from duly.domain.triggers.compiled import Compiled
from duly.domain.triggers.elapsed import ClockRepeat
from duly.domain.triggers.english.phrases import in_zone, listed
from duly.domain.triggers.errors import TriggerError, shown
from duly.domain.triggers.local_rule import StartedRule
from duly.domain.triggers.moments import DAY, LAST_YEAR, clock_text, date_of, day_of, local_text, month_days
from duly.domain.triggers.periods import Period
from duly.domain.triggers.zones.zones import UTC_ZONE, Zone

_COUNT = re.compile(r"R(-?\d{0,9})", re.ASCII)
_MONTH_SECONDS = 2_629_746
_FORM = "write R/start/duration or R5/start/duration, such as R/2026-01-31T09:00:00Z/P1M"
_BEYOND = 2**60


class CalendarRepeat(StartedRule):
    """A repetition in calendar units: k periods from the start, months first, cut to the month's last day."""

    def __init__(self, start: int, period: Period, count: int | None, zone: Zone) -> None:
        super().__init__(start, zone)
        self.period = period
        self.count = count
        first = date_of(self.start_local // DAY)
        self._month = first.year * 12 + first.month - 1
        self._day = first.day
        self._time = self.start_local % DAY
        self._mean = period.months * _MONTH_SECONDS + period.days * DAY

    def local_of(self, number: int) -> int:
        """Return occurrence `number` as local time."""
        year, month = divmod(self._month + number * self.period.months, 12)
        if year > LAST_YEAR + 1:
            return _BEYOND
        day = day_of(year, month + 1, min(self._day, month_days(year, month + 1)))
        return (day + number * self.period.days) * DAY + self._time

    def local_from(self, local: int, limit: int) -> int | None:
        number = self._number_from(local)
        if self.count is not None and number >= self.count:
            return None
        found = self.local_of(number)
        return found if found < limit else None

    def local_until(self, local: int, floor: int) -> int | None:
        number = self._number_from(local + 1) - 1
        if self.count is not None:
            number = min(number, self.count - 1)
        if number < 0:
            return None
        found = self.local_of(number)
        return found if found >= floor else None

    def _number_from(self, local: int) -> int:
        """Return the number of the first occurrence at or after `local`: estimated from the mean length, then corrected."""
        number = max(0, (local - self.start_local) // self._mean)
        while number > 0 and self.local_of(number - 1) >= local:
            number -= 1
        while self.local_of(number) < local:
            number += 1
        return number

    @property
    def canonical(self) -> dict[str, Any]:
        """The repetition with its start as the zone's clock shows it."""
        count = "" if self.count is None else str(self.count)
        text = f"R{count}/{self.start_text()}/{self.period.to_iso()}"
        return {"type": "iso8601", "text": text, "tz": self.zone.name}

    def describe(self) -> str:
        start = f"{local_text(self.start_local)[:10]} at {clock_text(self.start_local)}"
        limit = "" if self.count is None else f", {some(self.count, 'time')}"
        return in_zone(f"Every {self._period_words()} from {start}{limit}", self.zone.name)

    def _period_words(self) -> str:
        years, months = divmod(self.period.months, 12)
        weeks, days = divmod(self.period.days, 7) if self.period.days % 7 == 0 else (0, self.period.days)
        units = [(years, "year"), (months, "month"), (weeks, "week"), (days, "day")]
        given = [(count, unit) for count, unit in units if count]
        if len(given) == 1 and given[0][0] == 1:
            return given[0][1]
        return listed([some(count, unit) for count, unit in given])


def compile_iso(text: str, zone: Zone | None) -> Compiled:
    """Compile a repetition. Raises TriggerError."""
    parts = text.split("/")
    if len(parts) != 3 or not parts[0].startswith("R"):
        raise TriggerError("ISO_SYNTAX", f"text {shown(text)} is not a repetition; {_FORM}", "text", expression=text)
    count = _count(parts[0])
    if parts[1].startswith("P"):
        message = f"text {shown(text)} counts back from its end, which has no first occurrence; {_FORM}"
        raise TriggerError("ISO_FORM", message, "text", expression=text)
    start = stamps.read(parts[1], "text", zone)
    if not parts[2].startswith("P"):
        return ClockRepeat(_elapsed(start, stamps.read(parts[2], "text", zone), text), start, count)
    period = periods.read(parts[2], "text")
    if period.is_calendar:
        return CalendarRepeat(start, period, count, zone or UTC_ZONE)
    return ClockRepeat(period.seconds, start, count)


def _elapsed(start: int, end: int, text: str) -> int:
    if end <= start:
        raise TriggerError("WINDOW_EMPTY", f"text {shown(text)} ends before it has begun; swap start and end", "text")
    return end - start


def _count(text: str) -> int | None:
    match = _COUNT.fullmatch(text)
    if match is None or match[1] == "-":
        message = f"text begins with {shown(text)}; write R for no limit, or R5 for five times"
        raise TriggerError("ISO_SYNTAX", message, "text")
    if match[1] in ("", "-1"):
        return None
    if int(match[1]) < 1:
        message = f"text begins with {text}, which would never fire; write R1 or more, or R for no limit"
        raise TriggerError("ISO_COUNT", message, "text", "R")
    return int(match[1])
