"""Days of a month that a cron expression picks: one mask for each of the 28 shapes that a month can have."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from duly.domain.triggers.cron.specs import LAST, Field

SATURDAY, SUNDAY = 6, 0
SHAPES = 28
_UNKNOWN = -1
_LENGTHS = {month: (30,) if month in (4, 6, 9, 11) else (31,) for month in range(1, 13)} | {2: (28, 29)}


class DayRule(msgspec.Struct, frozen=True):
    """The two day fields and how they join. A field that is None is free."""

    day_of_month: Field | None
    day_of_week: Field | None
    needs_both: bool

    @property
    def is_either(self) -> bool:
        """Return whether both fields are set and one of them is enough."""
        return self.day_of_month is not None and self.day_of_week is not None and not self.needs_both


def rule_of(day_of_month: Field, day_of_week: Field, *, needs_both: bool) -> DayRule:
    """Join the two day fields, without parts that change nothing."""
    by_month = None if day_of_month.is_free else _bare(day_of_month)
    by_week = None if day_of_week.is_free else _bare(day_of_week)
    return DayRule(by_month, by_week, needs_both and by_month is not None and by_week is not None)


def _bare(field: Field) -> Field:
    return Field(field.mask, field.lasts, field.nears, field.weekdays_of_month)


class MonthMasks:
    """The days that a rule picks, computed once for each shape of month; bit d is day d."""

    __slots__ = ("_masks", "_rule")

    def __init__(self, rule: DayRule) -> None:
        self._rule = rule
        self._masks = [_UNKNOWN] * SHAPES

    def days(self, first_weekday: int, length: int) -> int:
        """Return the days picked in a month that begins on that weekday (0 is Sunday) and has that length."""
        shape = first_weekday * 4 + length - 28
        mask = self._masks[shape]
        if mask == _UNKNOWN:
            mask = self._masks[shape] = days_picked(self._rule, first_weekday, length)
        return mask


@lru_cache(maxsize=4096)
def masks_of(rule: DayRule) -> MonthMasks:
    """Return the masks of a rule, shared by all triggers that have it."""
    return MonthMasks(rule)


def days_picked(rule: DayRule, first_weekday: int, length: int) -> int:
    """Compute the days picked in one shape of month."""
    every = (2 << length) - 2
    by_month = every if rule.day_of_month is None else _by_month(rule.day_of_month, first_weekday, length)
    by_week = every if rule.day_of_week is None else _by_week(rule.day_of_week, first_weekday, length)
    return (by_month | by_week if rule.is_either else by_month & by_week) & every


def _by_month(field: Field, first_weekday: int, length: int) -> int:
    mask = field.mask
    for before in field.lasts:
        if before < length:
            mask |= 1 << (length - before)
    for day in field.nears:
        if day <= length:
            mask |= 1 << _nearest_weekday(day or length, first_weekday, length, is_last=day == LAST)
    return mask


def _nearest_weekday(day: int, first_weekday: int, length: int, *, is_last: bool) -> int:
    weekday = (first_weekday + day - 1) % 7
    if weekday == SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == SUNDAY:
        return day - 2 if is_last or day == length else day + 1
    return day


def _by_week(field: Field, first_weekday: int, length: int) -> int:
    mask = 0
    for weekday in range(7):
        if field.mask >> weekday & 1:
            mask |= _weekly(weekday, first_weekday)
    for weekday, which in field.weekdays_of_month:
        first = (weekday - first_weekday) % 7 + 1
        mask |= 1 << (first + (length - first) // 7 * 7 if which == LAST else first + 7 * (which - 1))
    return mask


def _weekly(weekday: int, first_weekday: int) -> int:
    # Days 1, 8, 15, 22, 29 and 36, moved to the first such weekday; the caller cuts at the month's end.
    return 0x1020408102 << (weekday - first_weekday) % 7


def ever_picks(rule: DayRule, months: int) -> bool:
    """Return whether any date is picked; over 400 years each month takes each of its shapes."""
    masks = masks_of(rule)
    return any(
        masks.days(weekday, length)
        for month, lengths in _LENGTHS.items()
        if months >> month & 1
        for length in lengths
        for weekday in range(7)
    )


def longest_month(months: int) -> int:
    """Return the greatest length among months."""
    return max(length for month, lengths in _LENGTHS.items() if months >> month & 1 for length in lengths)
