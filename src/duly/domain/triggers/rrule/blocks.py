"""The days of a recurrence rule, block by block: a month, a week or a year, each a base day and a mask of days from it.

Blocks are numbered from the one that holds the start of the rule. Daily and weekly rules are cut into months as well,
where a repeating pattern picks the days that lie a whole number of intervals after the start.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import date
from functools import lru_cache

import msgspec

from duly.domain.triggers.moments import EPOCH_ORDINAL, LAST_YEAR, date_of, month_days
from duly.domain.triggers.rrule.parser import Parts
from duly.domain.triggers.stamps import FIRST_YEAR

_FIRST_YEAR, _END_YEAR = FIRST_YEAR - 1, LAST_YEAR + 2
_UNKNOWN = -1
_SHAPES = 12 * 28
_EVERY_WEEKDAY = 0x7F
_END_DAY = date(LAST_YEAR + 1, 1, 3).toordinal() - EPOCH_ORDINAL

Block = tuple[int, int, int]  # number, base day, mask


class Blocks(ABC):
    """The blocks of one rule."""

    @abstractmethod
    def number_of(self, day: int) -> int:
        """Return the number of the last block that begins at or before `day`."""

    @abstractmethod
    def block(self, number: int) -> Block | None:
        """Return a block by its number; None beyond the last searched year."""

    def find(self, number: int, least: int) -> Block | None:
        """Return the first block from `number` on that has at least so many days."""
        while (block := self.block(number)) is not None and block[2].bit_count() < least:
            number = self.number_behind(block)
        return block

    def find_back(self, number: int, least: int) -> Block | None:
        """Return the last block up to `number` that has at least so many days."""
        blocks = (self.block(earlier) for earlier in range(number, -1, -1))
        return next((block for block in blocks if block is not None and block[2].bit_count() >= least), None)

    def number_behind(self, block: Block) -> int:
        """Return the number of the next block that may have days."""
        return block[0] + 1


class MonthBlocks(Blocks):
    """Months, every `step`-th of them. A pattern, if there is one, restarts every `cycle` days from `start_day`."""

    def __init__(self, parts: Parts, start_day: int, step: int, pattern: int = 0, cycle: int = 1) -> None:
        first = date_of(start_day)
        self._parts, self._step, self._pattern, self._cycle = parts, step, pattern, cycle
        self._origin = start_day
        self._first = (first.year - _FIRST_YEAR) * 12 + first.month - 1
        self._masks = [_UNKNOWN] * _SHAPES
        self._bases, self._shapes = _month_table()

    def with_origin(self, day: int) -> MonthBlocks:
        """Count the pattern from another day than the start: the first of its week."""
        self._origin = day
        return self

    def number_of(self, day: int) -> int:
        shown = date_of(day)
        return ((shown.year - _FIRST_YEAR) * 12 + shown.month - 1 - self._first) // self._step

    def block(self, number: int) -> Block | None:
        index = self._first + number * self._step
        if index >= len(self._bases):
            return None
        shape, base = self._shapes[index], self._bases[index]
        mask = self._masks[shape]
        if mask == _UNKNOWN:
            month, form = divmod(shape, 28)
            mask = self._masks[shape] = month_mask(self._parts, month + 1, form // 4, form % 4 + 28)
        if self._pattern and mask:
            mask &= self._pattern >> (base - self._origin) % self._cycle
        return number, base, mask


class YearBlocks(Blocks):
    """Years, every `step`-th of them."""

    def __init__(self, parts: Parts, start_day: int) -> None:
        self._parts, self._step = parts, parts.interval
        self._first = date_of(start_day).year
        self._masks: dict[tuple[int, bool], int] = {}

    def number_of(self, day: int) -> int:
        return (date_of(day).year - self._first) // self._step

    def block(self, number: int) -> Block | None:
        year = self._first + number * self._step
        if year >= _END_YEAR:
            return None
        base = date(year, 1, 1).toordinal() - EPOCH_ORDINAL
        shape = ((base + 4) % 7, month_days(year, 2) == 29)
        if shape not in self._masks:
            self._masks[shape] = year_mask(self._parts, *shape)
        return number, base, self._masks[shape]


class WeekBlocks(Blocks):
    """Weeks, every `interval`-th of them; needed where positions within the week are picked."""

    def __init__(self, parts: Parts, start_day: int) -> None:
        self._months = parts.months
        self._cycle = 7 * parts.interval
        self._start = first_of_week(start_day, parts.week_start)
        self._mask = 0
        for _, weekday in parts.weekdays:
            self._mask |= 1 << (weekday - parts.week_start) % 7

    def number_of(self, day: int) -> int:
        return (day - self._start) // self._cycle

    def block(self, number: int) -> Block | None:
        base = self._start + number * self._cycle
        return (number, base, self._in_months(base)) if base < _END_DAY else None

    def number_behind(self, block: Block) -> int:
        number, base, mask = block
        return number + 1 if mask else max(number + 1, self.number_of(self._next_month(base)))

    def _in_months(self, base: int) -> int:
        """Cut a week to the named months."""
        if not self._months:
            return self._mask
        first, last = date_of(base), date_of(base + 6)
        if first.month == last.month:
            return self._mask if first.month in self._months else 0
        early = (1 << 7 - last.day) - 1  # the days that still belong to the first month
        keep = (early if first.month in self._months else 0) | (~early if last.month in self._months else 0)
        return self._mask & keep & _EVERY_WEEKDAY

    def _next_month(self, base: int) -> int:
        """Return the first day after the week from `base` that lies in a named month."""
        last = date_of(base + 6)
        if last.month in self._months:
            return base + 7
        later = [month for month in self._months if month > last.month]
        year, month = (last.year, later[0]) if later else (last.year + 1, self._months[0])
        return date(year, month, 1).toordinal() - EPOCH_ORDINAL


def blocks_of(parts: Parts, start_day: int) -> Blocks:
    """Split time as the rule's frequency asks."""
    interval = parts.interval
    if parts.frequency == "YEARLY":
        return YearBlocks(parts, start_day)
    if parts.frequency == "MONTHLY":
        return MonthBlocks(parts, start_day, interval)
    if parts.frequency == "DAILY":
        return MonthBlocks(parts, start_day, 1, _repeated(1, interval), interval)
    if parts.positions:
        return WeekBlocks(parts, start_day)
    week = first_of_week(start_day, parts.week_start)
    return MonthBlocks(parts, start_day, 1, _repeated(_EVERY_WEEKDAY, 7 * interval), 7 * interval).with_origin(week)


def first_of_week(day: int, week_start: int) -> int:
    """Return the first day of the week that a day lies in."""
    return day - (day + 4 - week_start) % 7


def _repeated(bits: int, cycle: int) -> int:
    """Repeat a pattern far enough for any month at any phase; empty where every day is in it."""
    if bits.bit_length() == cycle:
        return 0
    return sum(bits << at for at in range(0, cycle + 32, cycle))


@lru_cache(maxsize=1)
def _month_table() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the first day and the shape of every searched month."""
    bases, shapes = [], []
    for year in range(_FIRST_YEAR, _END_YEAR):
        for month in range(1, 13):
            base = date(year, month, 1).toordinal() - EPOCH_ORDINAL
            bases.append(base)
            shapes.append((month - 1) * 28 + (base + 4) % 7 * 4 + month_days(year, month) - 28)
    return tuple(bases), tuple(shapes)


def month_mask(parts: Parts, month: int, first_weekday: int, length: int) -> int:
    """Return the days of one shape of month; bit 0 is the 1st."""
    if parts.months and month not in parts.months:
        return 0
    mask = (1 << length) - 1
    if parts.month_days:
        mask &= _counted_days(parts.month_days, length)
    if parts.weekdays:
        mask &= _weekday_mask(parts.weekdays, first_weekday, length)
    return mask


def year_mask(parts: Parts, first_weekday: int, is_leap: bool) -> int:
    """Return the days of one shape of year; bit 0 is 1 January."""
    # Without BYMONTH the n-th weekday is that of the year, not of the month.
    by_month = parts if parts.months else msgspec.structs.replace(parts, weekdays=())
    mask, at = 0, 0
    for month in range(1, 13):
        length = month_days(2024 if is_leap else 2023, month)
        mask |= month_mask(by_month, month, (first_weekday + at) % 7, length) << at
        at += length
    if parts.year_days:
        mask &= _counted_days(parts.year_days, at)
    if parts.weekdays and not parts.months:
        mask &= _weekday_mask(parts.weekdays, first_weekday, at)
    return mask


def _counted_days(numbers: tuple[int, ...], length: int) -> int:
    mask = 0
    for number in numbers:
        if abs(number) <= length:
            mask |= 1 << (number - 1 if number > 0 else length + number)
    return mask


def _weekday_mask(weekdays: tuple[tuple[int, int], ...], first_weekday: int, length: int) -> int:
    mask = 0
    for which, weekday in weekdays:
        days = range((weekday - first_weekday) % 7, length, 7)
        if which == 0:
            mask |= sum(1 << day for day in days)
        elif abs(which) <= len(days):
            mask |= 1 << days[which - 1 if which > 0 else which]
    return mask
