"""Calendars: spans of time that a schedule avoids or keeps to. Pure: coverage is a function of the moment."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

import msgspec

from duly.domain.triggers import spec, stamps
from duly.domain.triggers.compiling import check_keys, check_object, check_part, string
from duly.domain.triggers.cron.fields import Reader
from duly.domain.triggers.cron.specs import DAY_OF_WEEK
from duly.domain.triggers.errors import TriggerError, shown, together
from duly.domain.triggers.moments import DAY
from duly.domain.triggers.zones import zones
from duly.domain.triggers.zones.zones import Zone

BLOCKED_DAYS_MAX = 400
DATES_MAX, WINDOWS_MAX, WEEKLY_MAX = 10_000, 1_000, 50
# Calendars that alternate so often leave nothing worth finding; each step is a span of time.
_STEPS_MAX = 1_000
_FAR = 2**60
_TIME = re.compile(r"(\d\d):(\d\d)", re.ASCII)
Span = tuple[int, int]


class Calendar(msgspec.Struct, frozen=True):
    """Whole local days, spans between two moments, and hours of the week in local time.

    All are half-open and sorted; windows, and the hours of a day, do not touch.
    """

    name: str
    zone: Zone
    dates: tuple[int, ...] = ()
    windows: tuple[Span, ...] = ()
    weekly: tuple[tuple[Span, ...], ...] = ((),) * 7

    @property
    def digest(self) -> str:
        """A digest of the moments that the calendar covers."""
        covered = (self.zone.name, self.dates, self.windows, self.weekly)
        return sha256(msgspec.json.encode(covered)).hexdigest()

    def covered_until(self, second: int) -> int | None:
        """Return a moment up to which all is covered, if `second` is; more may follow."""
        local = self.zone.local_at(second)
        day, time = divmod(local, DAY)
        end = DAY if self._has_date(day) else _end_of(self.weekly[(day + 4) % 7], time)
        # A clock change may end it sooner or later, so it is checked again there.
        change = self.zone.piece_end(self.zone.piece_at(second))
        until = [] if end is None else [min(second + end - time, change)]
        window = _end_of(self.windows, second)
        return max(until if window is None else [*until, window], default=None)

    def free_until(self, second: int) -> int | None:
        """Return a moment before which nothing is covered, if `second` is not; None when nothing ever is again."""
        local = self.zone.local_at(second)
        starts = [start for start in (self._next_date(local), self._next_weekly(local)) if start is not None]
        change = self.zone.piece_end(self.zone.piece_at(second))
        found = [min(second + min(starts) - local, change)] if starts else []
        window = _start_after(self.windows, second)
        return min(found if window is None else [*found, window], default=None)

    def _has_date(self, day: int) -> bool:
        index = bisect_left(self.dates, day)
        return index < len(self.dates) and self.dates[index] == day

    def _next_date(self, local: int) -> int | None:
        index = bisect_right(self.dates, local // DAY)
        return self.dates[index] * DAY if index < len(self.dates) else None

    def _next_weekly(self, local: int) -> int | None:
        today, time = divmod(local, DAY)
        for day in range(today, today + 8):
            start = _start_after(self.weekly[(day + 4) % 7], time if day == today else -1)
            if start is not None:
                return day * DAY + start
        return None


class Use(msgspec.Struct, frozen=True):
    """The use of a calendar by a schedule."""

    calendar: Calendar
    mode: Literal["exclude", "include"] = "exclude"
    on_hit: Literal["skip", "defer"] = "skip"

    def blocks(self, second: int) -> bool:
        """Return whether an occurrence at `second` is blocked."""
        return (self.calendar.covered_until(second) is not None) == (self.mode == "exclude")

    def changes_after(self, second: int) -> int | None:
        """Return the next moment at which the answer of `blocks` may change."""
        covered = self.calendar.covered_until(second)
        return self.calendar.free_until(second) if covered is None else covered


def blockers(uses: Sequence[Use], second: int) -> list[Use]:
    """Return the uses that block a moment; all must permit it."""
    return [use for use in uses if use.blocks(second)]


def first_permitted(uses: Sequence[Use], second: int) -> int | None:
    """Return the first moment from `second` on that nothing blocks; None when there is none within 400 days."""
    limit = second + BLOCKED_DAYS_MAX * DAY
    for _ in range(_STEPS_MAX):
        blocking = next((use for use in uses if use.blocks(second)), None)
        if blocking is None:
            return second
        changed = blocking.changes_after(second)
        if changed is None or changed >= limit:
            return None
        second = changed
    return None


def permitted(uses: Sequence[Use], start: int, end: int, stretches_max: int) -> Iterator[Span]:
    """Return the spans between two moments that nothing blocks, in order; the rest is left out where there are too many."""
    for _ in range(stretches_max):
        if start >= end:
            return
        changes = [change for use in uses if (change := use.changes_after(start)) is not None]
        until = min([end, *changes])
        if not blockers(uses, start):
            yield start, until
        start = until


def next_blocked(uses: Sequence[Use], second: int, limit: int) -> int:
    """Return the first moment after `second`, and at most `limit`, that something blocks."""
    found = limit
    for use in uses:
        at: int | None = second
        while at is not None and at < found and not use.blocks(at):
            at = use.changes_after(at)
        found = found if at is None else min(found, at)
    return found


def read_calendar(value: object) -> Calendar:
    """Read a calendar. Raises TriggerError, which carries every problem."""
    shape = check_object(value, "calendar")
    check_keys(shape, spec.CalendarSpec, "name")
    name = string(shape, "name")
    zone = zones.UTC_ZONE if shape.get("tz") is None else zones.find(shape["tz"])
    errors: list[TriggerError] = []
    dates = _each(shape, "dates", DATES_MAX, errors, stamps.read_date)
    windows = _each(shape, "windows", WINDOWS_MAX, errors, lambda item, field: _window(item, field, zone))
    weekly = _each(shape, "weekly", WEEKLY_MAX, errors, _weekly)
    if errors:
        raise together(errors)
    days = tuple(_merged([span for mask, span in weekly if mask >> day & 1]) for day in range(7))
    return Calendar(name, zone, tuple(sorted(set(dates))), _merged(windows), days)


def _merged(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Join spans that touch, so that each moment lies in at most one."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return tuple(found)


def _end_of(spans: tuple[Span, ...], at: int) -> int | None:
    """Return the end of the span that holds `at`, if one does."""
    index = bisect_right(spans, (at, _FAR)) - 1
    return spans[index][1] if index >= 0 and at < spans[index][1] else None


def _start_after(spans: tuple[Span, ...], at: int) -> int | None:
    """Return the start of the first span after `at`, if there is one."""
    index = bisect_right(spans, (at, _FAR))
    return spans[index][0] if index < len(spans) else None


def _each(shape: Mapping[str, Any], key: str, most: int, errors: list[TriggerError], read: Any) -> list[Any]:
    items = shape.get(key) or []
    if not isinstance(items, Sequence) or isinstance(items, str):
        errors.append(TriggerError("TRIGGER_VALUE", f"{key} {shown(items)} is not a list", key))
        return []
    if len(items) > most:
        errors.append(TriggerError("LIMIT", f"{key} has {len(items)} entries, over the limit of {most}", key))
        return []
    found = []
    for index, item in enumerate(items):
        try:
            found.append(read(item, f"{key}[{index}]"))
        except TriggerError as error:
            errors.append(error)
    return found


def _window(item: object, field: str, zone: Zone) -> Span:
    shape = check_part(item, field, spec.Window)
    start, end = stamps.read(shape["start"], f"{field}.start", zone), stamps.read(shape["end"], f"{field}.end", zone)
    if end <= start:
        raise TriggerError("WINDOW_EMPTY", f"{field} ends at or before its start; swap them", field)
    return start, end


def _weekly(item: object, field: str) -> tuple[int, Span]:
    shape = check_part(item, field, spec.Weekly)
    start, end = _time(shape["from"], f"{field}.from"), _time(shape["to"], f"{field}.to")
    if end <= start:
        message = (
            f"{field} ends at or before its start; for a night write two entries, one up to 24:00 and one from 00:00"
        )
        raise TriggerError("WINDOW_EMPTY", message, field)
    days = shape["days"]
    if not isinstance(days, str) or len(days) > 64 or not days.isascii():
        raise TriggerError(
            "TRIGGER_VALUE", f"{field}.days {shown(days)} is not a list of days such as SAT,SUN", f"{field}.days"
        )
    try:
        return Reader(days, None).field(DAY_OF_WEEK, days.upper().replace(" ", ""), 0).mask, (start, end)
    except TriggerError as error:
        error.field = f"{field}.days"
        raise


def _time(value: object, field: str) -> int:
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    seconds = int(match[1]) * 3600 + int(match[2]) * 60 if match and int(match[2]) < 60 else DAY + 1
    if seconds > DAY:
        raise TriggerError("DATETIME_SYNTAX", f"{field} {shown(value)} is not a time from 00:00 to 24:00", field)
    return seconds
