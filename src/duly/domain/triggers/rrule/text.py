"""Text of a recurrence rule: its canonical form, and a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from duly.domain.counting import some
from duly.domain.triggers.english.phrases import MONTHS, WEEKDAYS, every, in_zone, listed, ordinal
from duly.domain.triggers.moments import clock_text, local_text
from duly.domain.triggers.rrule.parser import WEEKDAYS as CODES
from duly.domain.triggers.rrule.parser import Parts
from duly.domain.triggers.zones.zones import Zone

_UNITS = {"DAILY": "day", "WEEKLY": "week", "MONTHLY": "month", "YEARLY": "year"}
_TIMES_LISTED_MAX = 6


def rule(parts: Parts) -> str:
    """Write the parts in canonical order, without redundant ones."""
    until = None if parts.until is None else local_text(parts.until).replace("-", "").replace(":", "") + "Z"
    matters = parts.frequency == "WEEKLY" and parts.week_start != 1
    found = [
        ("FREQ", parts.frequency),
        ("INTERVAL", str(parts.interval) if parts.interval > 1 else None),
        ("COUNT", None if parts.count is None else str(parts.count)),
        ("UNTIL", until),
        ("WKST", CODES[parts.week_start] if matters else None),
        ("BYMONTH", _numbers(parts.months)),
        ("BYMONTHDAY", _numbers(parts.month_days)),
        ("BYYEARDAY", _numbers(parts.year_days)),
        ("BYDAY", ",".join(f"{which or ''}{CODES[weekday]}" for which, weekday in parts.weekdays)),
        ("BYHOUR", _numbers(parts.hours)),
        ("BYMINUTE", _numbers(parts.minutes)),
        ("BYSETPOS", _numbers(parts.positions)),
    ]
    return ";".join(f"{name}={value}" for name, value in found if value)


def _numbers(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))


def sentence(parts: Parts, times: Sequence[int], exceptions: int, zone: Zone) -> str:
    """Describe when it fires."""
    words = every(parts.interval, _UNITS[parts.frequency]) + _days(parts) + _times(times) + _bounds(parts, zone)
    if exceptions:
        words += f", except {some(exceptions, 'date')}"
    return in_zone(words, zone.name)


def _days(parts: Parts) -> str:
    words = ""
    if parts.weekdays:
        words += " on " + listed([_weekday(which, weekday, parts) for which, weekday in parts.weekdays])
    if parts.month_days:
        words += (", if that is" if words else " on") + " the " + listed([_counted(day) for day in parts.month_days])
    if parts.year_days:
        words += " on day " + listed([str(day) for day in parts.year_days]) + " of the year"
    if parts.months:
        words += " in " + listed([MONTHS[month] for month in parts.months])
    if parts.positions:
        words += ", of these the " + listed([_counted(position, "") for position in parts.positions])
    return words


def _weekday(which: int, weekday: int, parts: Parts) -> str:
    if which == 0:
        return WEEKDAYS[weekday]
    period = "year" if parts.frequency == "YEARLY" and not parts.months else "month"
    return f"the {_counted(which, '')} {WEEKDAYS[weekday]} of the {period}"


def _counted(number: int, unit: str = " day") -> str:
    if number > 0:
        return ordinal(number)
    return f"last{unit}" if number == -1 else f"{ordinal(-number)} last{unit}"


def _times(times: Sequence[int]) -> str:
    if not times:
        return ""
    if len(times) > _TIMES_LISTED_MAX:
        return f" at {len(times)} times of day from {clock_text(times[0])} to {clock_text(times[-1])}"
    return " at " + listed([clock_text(time) for time in times])


def _bounds(parts: Parts, zone: Zone) -> str:
    if parts.count is not None:
        return f", {some(parts.count, 'time')}"
    if parts.until is None:
        return ""
    local = zone.local_at(parts.until)
    return f", until {local_text(local)[:10]} {clock_text(local)}"
