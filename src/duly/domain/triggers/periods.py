"""Durations inside triggers: calendar units or clock units, never both, and whole numbers only."""

from __future__ import annotations

import re
from datetime import timedelta

import msgspec

from duly.domain.duration import to_iso
from duly.domain.triggers.errors import TriggerError, shown
from duly.domain.triggers.moments import DAY

_PERIOD = re.compile(
    r"P(?:(\d{1,9})Y)?(?:(\d{1,9})M)?(?:(\d{1,9})W)?(?:(\d{1,9})D)?"
    r"(T(?:(\d{1,10})H)?(?:(\d{1,10})M)?(?:(\d{1,10})(?:[.,](\d{1,12}))?S)?)?",
    re.ASCII,
)
_CHARACTERS_MAX = 64
_YEARS_MAX = 300


class Period(msgspec.Struct, frozen=True):
    """A duration: months and days by the calendar, or seconds by the clock."""

    months: int = 0
    days: int = 0
    seconds: int = 0

    @property
    def is_calendar(self) -> bool:
        """Return whether it follows the calendar rather than the clock."""
        return not self.seconds

    def to_iso(self) -> str:
        """Write it in normal form."""
        if self.seconds:
            return to_iso(timedelta(seconds=self.seconds))
        years, months = divmod(self.months, 12)
        parts = [f"{years}Y" if years else "", f"{months}M" if months else "", f"{self.days}D" if self.days else ""]
        return "P" + "".join(parts)


def read(value: object, field: str) -> Period:
    """Parse a duration. Raises TriggerError."""
    match = _PERIOD.fullmatch(value) if isinstance(value, str) and len(value) <= _CHARACTERS_MAX else None
    if match is None or value in ("P", "PT") or match[5] == "T":
        raise TriggerError("DURATION_SYNTAX", f"{field} {shown(value)} is not a duration; {_remedy(value)}", field)
    years, months, weeks, days = (int(match[group] or 0) for group in (1, 2, 3, 4))
    hours, minutes, seconds = (int(match[group] or 0) for group in (6, 7, 8))
    if match[9] and match[9].strip("0"):
        raise TriggerError("SUB_SECOND", f"{field} {shown(value)} names a part of a second; whole seconds only", field)
    if match[5] and any(match[group] for group in (1, 2, 3, 4)):
        message = f"{field} {shown(value)} mixes calendar and clock units; write one kind, such as PT36H or P2D"
        raise TriggerError("DURATION_MIXED", message, field)
    period = Period(years * 12 + months, weeks * 7 + days, hours * 3600 + minutes * 60 + seconds)
    return _within_reach(period, value, field)


def read_clock(value: object, field: str) -> int:
    """Parse a duration in clock units, in seconds. Raises TriggerError."""
    period = read(value, field)
    if period.is_calendar:
        message = (
            f"{field} {shown(value)} is in calendar units, whose length varies; write clock units such as PT24H, "
            "or use an iso8601 trigger"
        )
        raise TriggerError("DURATION_CALENDAR", message, field)
    return period.seconds


def _within_reach(period: Period, value: object, field: str) -> Period:
    if period == Period():
        raise TriggerError("DURATION_ZERO", f"{field} {shown(value)} is zero; the shortest is PT1S", field, "PT1S")
    if period.months > _YEARS_MAX * 12 or period.days > _YEARS_MAX * 366 or period.seconds > _YEARS_MAX * 366 * DAY:
        raise TriggerError(
            "LIMIT", f"{field} {shown(value)} is longer than {_YEARS_MAX} years; write a shorter one", field
        )
    return period


def _remedy(value: object) -> str:
    """Guess the meaning of `15m`, `90 s` or `pt5m`."""
    text = str(value).strip()[:20].upper()
    if _PERIOD.fullmatch(text) and text not in ("P", "PT"):
        return f"write {text}"
    if match := re.fullmatch(r"(\d{1,9})\s*(S|SEC|SECONDS?|M|MIN|MINUTES?|H|HOURS?)", text, re.ASCII):
        return f"write PT{match[1]}{match[2][0]}"
    if match := re.fullmatch(r"(\d{1,9})\s*(D|W|Y|DAYS?|WEEKS?|YEARS?)", text, re.ASCII):
        return f"write P{match[1]}{match[2][0]}"
    return "write PT30S, PT15M, PT2H or P1D"
