"""Parsing of an RRULE: the parts of RFC 5545 that name dates and times of day."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NoReturn

import msgspec

from duly.domain.triggers.errors import TriggerError, check_length, nearest, shown, together
from duly.domain.triggers.moments import LAST_SECOND, second_of

CHARACTERS_MAX = 1024
COUNT_MAX = 5_000  # above it, the last occurrence could not be found quickly enough
INTERVAL_MAX = 10_000
_ERRORS_MAX = 10
FREQUENCIES = ("DAILY", "WEEKLY", "MONTHLY", "YEARLY")
SUB_DAILY = ("HOURLY", "MINUTELY", "SECONDLY")
WEEKDAYS = ("SU", "MO", "TU", "WE", "TH", "FR", "SA")
_REFUSED = {"BYWEEKNO": "name dates with BYYEARDAY or BYMONTHDAY", "BYSECOND": "the second is that of dtstart"}
_NUMBERS = {
    "BYMONTH": (1, 12, False),
    "BYMONTHDAY": (1, 31, True),
    "BYYEARDAY": (1, 366, True),
    "BYSETPOS": (1, 366, True),
    "BYHOUR": (0, 23, False),
    "BYMINUTE": (0, 59, False),
}
_KNOWN = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_NUMBERS)
_NUMBER = re.compile(r"[+-]?\d{1,4}", re.ASCII)
_DAY = re.compile(r"([+-]?\d{1,2})?(SU|MO|TU|WE|TH|FR|SA)", re.ASCII)
_UNTIL = re.compile(r"\d{8}T\d{6}Z", re.ASCII)


class Parts(msgspec.Struct, frozen=True):
    """An RRULE as written. A weekday is (which of the period, 0 for each; weekday from Sunday, 0)."""

    frequency: str
    interval: int = 1
    count: int | None = None
    until: int | None = None
    week_start: int = 1
    months: tuple[int, ...] = ()
    month_days: tuple[int, ...] = ()
    year_days: tuple[int, ...] = ()
    weekdays: tuple[tuple[int, int], ...] = ()
    positions: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    minutes: tuple[int, ...] = ()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 6 if text[:6].upper() == "RRULE:" else 0
        self.found: dict[str, str] = {}
        self.spans: dict[str, tuple[int, int]] = {}

    def split(self) -> None:
        errors = []
        place = self.at
        for part in self.text[self.at :].split(";"):
            span = (place, max(place + len(part), place + 1))
            place += len(part) + 1
            try:
                self.take(part, span)
            except TriggerError as error:
                errors.append(error)
            if len(errors) == _ERRORS_MAX:
                break
        if errors:
            raise together(errors)

    def take(self, part: str, span: tuple[int, int]) -> None:
        name, equals, value = (piece.strip().upper() for piece in part.partition("="))
        if not equals or not value:
            self.refuse("RRULE_PART", f"{shown(part)} in rrule is not NAME=VALUE, such as FREQ=DAILY", span)
        if name in _REFUSED:
            self.refuse("RRULE_PART", f"{name} in rrule is not supported; {_REFUSED[name]}", span)
        if name not in _KNOWN:
            meant = nearest(name, _KNOWN)
            remedy = f"did you mean {meant}?" if meant else f"known are {', '.join(_KNOWN)}"
            self.refuse("RRULE_PART", f"{shown(name)} in rrule is not a known part; {remedy}", span, meant)
        if name in self.found:
            self.refuse("RRULE_PART", f"{name} in rrule is given twice; keep one", span)
        self.found[name] = value
        self.spans[name] = span

    def refuse(self, code: str, message: str, span: tuple[int, int] | None, hint: str | None = None) -> NoReturn:
        raise TriggerError(code, message, "rrule", hint, expression=self.text, span=span)

    def refuse_part(self, code: str, name: str, why: str) -> NoReturn:
        self.refuse(code, f"{name}={shown(self.found[name])[1:-1]} in rrule: {why}", self.spans[name])

    def frequency(self) -> str:
        if "FREQ" not in self.found:
            self.refuse("RRULE_FREQ", "rrule has no FREQ; begin with FREQ=DAILY, WEEKLY, MONTHLY or YEARLY", None)
        value = self.found["FREQ"]
        if value in SUB_DAILY:
            self.refuse_part("RRULE_FREQ", "FREQ", "less than a day is for a cron or an interval trigger")
        if value not in FREQUENCIES:
            self.refuse_part("RRULE_FREQ", "FREQ", "use DAILY, WEEKLY, MONTHLY or YEARLY")
        return value

    def number(self, name: str, high: int) -> int | None:
        value = self.found.get(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit()) or len(value) > 9 or not 1 <= int(value) <= high:
            self.refuse_part("RRULE_BOUNDS", name, f"use a number from 1 to {high}")
        return int(value)

    def numbers(self, name: str) -> tuple[int, ...]:
        low, high, may_be_negative = _NUMBERS[name]
        values = set()
        for item in self.found[name].split(",") if name in self.found else ():
            number = int(item) if _NUMBER.fullmatch(item) else None
            if number is None or not low <= (abs(number) if may_be_negative else number) <= high:
                both = f" or -{high} to -{low}" if may_be_negative else ""
                self.refuse_part("RRULE_BOUNDS", name, f"{shown(item)} is not a number from {low} to {high}{both}")
            values.add(number)
        return tuple(sorted(values))

    def weekdays(self, frequency: str) -> tuple[tuple[int, int], ...]:
        values = set()
        for item in self.found["BYDAY"].split(",") if "BYDAY" in self.found else ():
            match = _DAY.fullmatch(item)
            which = int(match[1]) if match and match[1] else 0
            if match is None or (match[1] and not 1 <= abs(which) <= 53):
                self.refuse_part("RRULE_BOUNDS", "BYDAY", f"{shown(item)} is not a day such as MO, 2TU or -1FR")
            if which and frequency in ("DAILY", "WEEKLY"):
                self.refuse_part(
                    "RRULE_PART", "BYDAY", f"a number before a day needs MONTHLY or YEARLY; write {match[2]}"
                )
            values.add((which, WEEKDAYS.index(match[2])))
        return tuple(sorted(values))

    def until(self) -> int | None:
        value = self.found.get("UNTIL")
        if value is None:
            return None
        moment = _until(value)
        if moment is None:
            self.refuse_part("RRULE_BOUNDS", "UNTIL", "write a moment in UTC, such as 20261231T235959Z")
        return min(second_of(moment), LAST_SECOND)

    def week_start(self) -> int:
        value = self.found.get("WKST", "MO")
        if value not in WEEKDAYS:
            self.refuse_part("RRULE_BOUNDS", "WKST", "use one of SU MO TU WE TH FR SA")
        return WEEKDAYS.index(value)


def _until(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%S%z") if _UNTIL.fullmatch(text) else None
    except ValueError:
        return None


def parse(text: str) -> Parts:
    """Parse an RRULE. Raises TriggerError."""
    check_length(text, "rrule", CHARACTERS_MAX)
    reader = _Reader(text)
    reader.split()
    frequency = reader.frequency()
    _check_parts(reader, frequency)
    return Parts(
        frequency=frequency,
        interval=reader.number("INTERVAL", INTERVAL_MAX) or 1,
        count=reader.number("COUNT", COUNT_MAX),
        until=reader.until(),
        week_start=reader.week_start(),
        months=reader.numbers("BYMONTH"),
        month_days=reader.numbers("BYMONTHDAY"),
        year_days=reader.numbers("BYYEARDAY"),
        weekdays=reader.weekdays(frequency),
        positions=reader.numbers("BYSETPOS"),
        hours=reader.numbers("BYHOUR"),
        minutes=reader.numbers("BYMINUTE"),
    )


def _check_parts(reader: _Reader, frequency: str) -> None:
    if "COUNT" in reader.found and "UNTIL" in reader.found:
        reader.refuse_part("RRULE_BOUNDS", "COUNT", "COUNT and UNTIL exclude each other; keep one")
    if "BYMONTHDAY" in reader.found and frequency == "WEEKLY":
        reader.refuse_part("RRULE_PART", "BYMONTHDAY", "a week has no days of the month; use FREQ=MONTHLY or DAILY")
    if "BYYEARDAY" in reader.found and frequency != "YEARLY":
        reader.refuse_part("RRULE_PART", "BYYEARDAY", "use it with FREQ=YEARLY")
    if "BYSETPOS" in reader.found and not any(name.startswith("BY") for name in reader.found if name != "BYSETPOS"):
        reader.refuse_part(
            "RRULE_PART", "BYSETPOS", "it picks from what another BY part gives; add BYDAY or BYMONTHDAY"
        )
