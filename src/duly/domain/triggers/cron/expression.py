"""Cron: a compiled expression, searched with bit masks, month by month, day by day, then within the day."""

from __future__ import annotations

from datetime import date
from functools import cached_property
from typing import Any

import msgspec

from duly.domain.triggers.compiled import TriggerWarning
from duly.domain.triggers.cron import counting, parser
from duly.domain.triggers.cron import days as cron_days
from duly.domain.triggers.cron import text as cron_text
from duly.domain.triggers.cron.parser import Expression
from duly.domain.triggers.cron.specs import FIELDS
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.local_rule import LocalRule
from duly.domain.triggers.moments import DAY, EPOCH_ORDINAL, month_days
from duly.domain.triggers.zones import zones

_FULL_HOURS = (1 << 24) - 1
_DENSE = 60
_RESTARTS = {"second": "minute", "minute": "hour", "hour": "day", "dom": "month", "month": "year", "dow": "week"}


class Cron(LocalRule):
    """A cron expression in a zone. Weekdays count from Sunday, 0."""

    steps_per_count = 0

    def __init__(self, expression: Expression, zone: zones.Zone) -> None:
        self._expression = expression
        self.zone = zone
        self.kind = "wildcard" if expression.minute.is_star or expression.hour.is_star else "fixed"
        self.seconds = expression.second.mask
        self.minutes = expression.minute.mask
        self.hours = expression.hour.mask
        self.months = expression.month.mask
        self.days = cron_days.rule_of(
            expression.day_of_month, expression.day_of_week, needs_both=expression.needs_both_days
        )
        self.masks = cron_days.masks_of(self.days)
        first_minute, first_second = _lowest(self.minutes) * 60, _lowest(self.seconds)
        self._first_in_minute = first_second
        self._first_in_hour = first_minute + first_second
        self._first_in_day = _lowest(self.hours) * 3600 + self._first_in_hour
        self._last_in_minute = _highest(self.seconds)
        self._last_in_hour = _highest(self.minutes) * 60 + self._last_in_minute
        self._last_in_day = _highest(self.hours) * 3600 + self._last_in_hour
        self.fires_per_hour_max = self.seconds.bit_count() * self.minutes.bit_count()

    def count_seconds(self, start: int, end: int, most: int) -> int:
        """Count the occurrences from `start` on and before `end`, all of them: it takes no longer."""
        count = counting.count_shown if self.kind == "wildcard" else counting.count_named
        return count(self, start, end)

    def local_from(self, local: int, limit: int) -> int | None:
        day, time = divmod(local, DAY)
        start = date.fromordinal(day + EPOCH_ORDINAL)
        year, month, number = start.year, start.month, start.day
        if self.months >> month & 1:
            days = self.masks.days((day - number + 5) % 7, month_days(year, month)) >> number
            if days & 1 and (at := self._time_from(time)) >= 0:
                found = day * DAY + at
                return found if found < limit else None
            days >>= 1
            if days:
                found = (day + _lowest(days) + 1) * DAY + self._first_in_day
                return found if found < limit else None
        return self._from_later_month(year, month, limit)

    def local_until(self, local: int, floor: int) -> int | None:
        day, time = divmod(local, DAY)
        start = date.fromordinal(day + EPOCH_ORDINAL)
        year, month, number = start.year, start.month, start.day
        if self.months >> month & 1:
            days = self.masks.days((day - number + 5) % 7, month_days(year, month))
            if days >> number & 1 and (at := self._time_until(time)) >= 0:
                found = day * DAY + at
                return found if found >= floor else None
            days &= (1 << number) - 1
            if days:
                found = (day - number + _highest(days)) * DAY + self._last_in_day
                return found if found >= floor else None
        return self._until_earlier_month(year, month, floor)

    def _from_later_month(self, year: int, month: int, limit: int) -> int | None:
        while True:
            later = self.months >> month >> 1
            year, month = (year, month + 1 + _lowest(later)) if later else (year + 1, _lowest(self.months))
            first = date(year, month, 1).toordinal() - EPOCH_ORDINAL
            if first * DAY >= limit:
                return None
            days = self.masks.days((first + 4) % 7, month_days(year, month))
            if days:
                found = (first + _lowest(days) - 1) * DAY + self._first_in_day
                return found if found < limit else None

    def _until_earlier_month(self, year: int, month: int, floor: int) -> int | None:
        while True:
            earlier = self.months & ((1 << month) - 1)
            year, month = (year, _highest(earlier)) if earlier else (year - 1, _highest(self.months))
            length = month_days(year, month)
            if year < 1 or (date(year, month, 1).toordinal() - EPOCH_ORDINAL + length) * DAY <= floor:
                return None
            first = date(year, month, 1).toordinal() - EPOCH_ORDINAL
            days = self.masks.days((first + 4) % 7, length)
            if days:
                found = (first + _highest(days) - 1) * DAY + self._last_in_day
                return found if found >= floor else None

    def _time_from(self, time: int) -> int:
        """Return the first time of day at or after `time`, or -1."""
        hour, rest = divmod(time, 3600)
        hours = self.hours >> hour
        if hours & 1:
            minute, second = divmod(rest, 60)
            minutes = self.minutes >> minute
            if minutes & 1 and (seconds := self.seconds >> second):
                return time + _lowest(seconds)
            minutes >>= 1
            if minutes:
                return time - second + (_lowest(minutes) + 1) * 60 + self._first_in_minute
        hours >>= 1
        return (hour + _lowest(hours) + 1) * 3600 + self._first_in_hour if hours else -1

    def _time_until(self, time: int) -> int:
        """Return the last time of day at or before `time`, or -1."""
        hour, rest = divmod(time, 3600)
        if self.hours >> hour & 1:
            minute, second = divmod(rest, 60)
            if self.minutes >> minute & 1 and (seconds := self.seconds & ((2 << second) - 1)):
                return time - second + _highest(seconds)
            if minutes := self.minutes & ((1 << minute) - 1):
                return hour * 3600 + _highest(minutes) * 60 + self._last_in_minute
        hours = self.hours & ((1 << hour) - 1)
        return _highest(hours) * 3600 + self._last_in_hour if hours else -1

    def keeps_rhythm(self, shift: int) -> bool:
        rotation = abs(shift) // 60 % 60
        rotated = (self.minutes << rotation | self.minutes >> (60 - rotation)) & ((1 << 60) - 1)
        return self.hours == _FULL_HOURS and shift % 60 == 0 and rotated == self.minutes

    @cached_property
    def expr(self) -> str:
        """The expression in its canonical form."""
        return cron_text.expression(self._expression, self.days)

    @property
    def canonical(self) -> dict[str, Any]:
        return {"type": "cron", "expr": self.expr, "tz": self.zone.name}

    def describe(self) -> str:
        return cron_text.sentence(self.seconds, self.minutes, self.hours, self.months, self.days, self.zone.name)

    @property
    def warnings(self) -> tuple[TriggerWarning, ...]:
        return (*self._day_warnings(), *self._step_warnings(), *self._density_warnings())

    def _day_warnings(self) -> list[TriggerWarning]:
        found = []
        if self.days.is_either:
            either = "both day fields are set, and either is enough; write + before the weekday if both must match"
            found.append(TriggerWarning("DAY_OR", either))
        if self._expression.has_numbered_weekdays_and_mark:
            found.append(
                TriggerWarning("WEEKDAY_NUMBERS", "1 is Monday and 0 or 7 is Sunday here; write names to be sure")
            )
        found += [TriggerWarning("DEAD_PART", f"{part} does not occur in these months") for part in self._dead_parts()]
        return found

    def _dead_parts(self) -> list[str]:
        field, longest = self.days.day_of_month, cron_days.longest_month(self.months)
        if field is None:
            return []
        return [
            *(str(day) for day in range(longest + 1, 32) if field.mask >> day & 1),
            *(f"L-{before}" for before in field.lasts if before >= longest),
            *(f"{day}W" for day in field.nears if day > longest),
        ]

    def _step_warnings(self) -> list[TriggerWarning]:
        fields = msgspec.structs.astuple(self._expression)[: len(FIELDS)]
        return [
            TriggerWarning("UNEVEN_STEP", f"/{step} in {spec.title} starts again each {_RESTARTS[spec.key]}")
            for spec, field in zip(FIELDS, fields, strict=True)
            for step in field.uneven_steps
        ]

    def _density_warnings(self) -> list[TriggerWarning]:
        count = self.fires_per_hour_max
        return [TriggerWarning("DENSE", f"it fires {count} times an hour")] if count > _DENSE else []


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _highest(mask: int) -> int:
    return mask.bit_length() - 1


def compile_cron(text: str, tz: str | None, job_id: str | None) -> Cron:
    """Compile a cron expression. Raises TriggerError."""
    zone = zones.find(tz) if tz is not None else None
    expression = parser.parse(text, job_id)
    if zone is not None and expression.zone is not None and zone.name != expression.zone.name:
        message = f"expr says {expression.zone.name} and tz says {zone.name}; keep one of them"
        raise TriggerError("TZ_CONFLICT", message, "tz", expression.zone.name)
    compiled = Cron(expression, zone or expression.zone or zones.UTC_ZONE)
    if not cron_days.ever_picks(compiled.days, compiled.months):
        message = f"expr {text.strip()!r}: no date in the 400-year calendar matches; check day and month"
        raise TriggerError("CRON_NEVER_FIRES", message, "expr", expression=text)
    return compiled
