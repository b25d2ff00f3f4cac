"""RRULE: recurrence by the calendar. Time is cut into blocks (months, weeks or years) whose days are a bit mask."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import date
from typing import Any

import msgspec

from duly.domain.triggers import rrule_parser, rrule_text, stamps
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.moments import DAY, EPOCH_ORDINAL, LAST_YEAR, date_of, month_days, utc_text
from duly.domain.triggers.rrule_parser import Parts
from duly.domain.triggers.started_rule import StartedRule
from duly.domain.triggers.zones import UTC_ZONE, Zone

EXDATES_MAX = 500
_EVERY_WEEKDAY = 0x7F


class Rrule(StartedRule):
    """A recurrence rule from its start on, less its exceptions.

    Blocks are numbered from the one that holds the start. Daily rules are cut into months, so that their days are found
    by the month's mask and by the phase of the interval.
    """

    def __init__(self, parts: Parts, start: int, zone: Zone, exdates: Sequence[int]) -> None:
        super().__init__(start, zone)
        self.parts = parts
        self.exdates = frozenset(exdates)
        first = date_of(self.start_local // DAY)
        self._filled = _with_defaults(parts, first)
        self._start_day = self.start_local // DAY
        self._start_month = first.year * 12 + first.month - 1
        self._start_year = first.year
        self._start_week = self._start_day - ((self._start_day + 4) - parts.week_start) % 7
        self._month_masks: dict[tuple[int, int, int], int] = {}
        self._year_masks: dict[tuple[int, bool], int] = {}
        self._times, self._positions = _times_and_positions(self._filled, self.start_local % DAY)
        self._is_empty = not self._times or self._positions == ()
        self.fires_per_hour_max = max(1, len(parts.minutes))
        self._last_local: int | None = None
        if parts.count is not None and not self._is_empty:
            self._last_local = self._nth_local(parts.count)

    # The start and the bounds ----------------------------------------------------------------------------------------

    def second_from(self, second: int) -> int | None:
        """Give the first occurrence at or after `second`, which is not an exception."""
        found = super().second_from(second)
        while found is not None and found in self.exdates:
            found = super().second_from(found + 1)
        return None if found is None or (self.parts.until is not None and found > self.parts.until) else found

    def second_until(self, second: int) -> int | None:
        """Give the last occurrence at or before `second`, which is not an exception."""
        found = super().second_until(second if self.parts.until is None else min(second, self.parts.until))
        while found is not None and found in self.exdates:
            found = super().second_until(found - 1)
        return found

    def local_from(self, local: int, limit: int) -> int | None:
        """Give the first local time of the rule at or after `local` and before `limit`."""
        local = max(local, self.start_local)
        if self._last_local is not None:
            limit = min(limit, self._last_local + 1)
        number = self._block_of(local)
        while not self._is_empty and (base := self._base(number)) is not None and base * DAY < limit:
            found = self._first_in(number, base, local)
            if found is not None:
                return found if found < limit else None
            number += 1
        return None

    def local_until(self, local: int, floor: int) -> int | None:
        """Give the last local time of the rule at or before `local` and not before `floor`."""
        if self._last_local is not None:
            local = min(local, self._last_local)
        floor = max(floor, self.start_local)
        number = self._block_of(local) if local >= floor and not self._is_empty else -1
        while number >= 0:
            base = self._base(number)
            found = None if base is None else self._last_in(number, base, local)
            if found is not None:
                return found if found >= floor else None
            number -= 1
        return None

    def _nth_local(self, count: int) -> int:
        """Find the local time of the last of `count` occurrences; of those before the end of time if it is not reached."""
        number, left = 0, count
        while (base := self._base(number)) is not None:
            size = self._size(number, base)
            if size >= left:
                return self._in_block(number, base)[self._skipped(number, base) + left - 1]
            left -= size
            number += 1
        return 2**60

    def _skipped(self, number: int, base: int) -> int:
        """Count what of the first block lies before the start."""
        return bisect_left(self._in_block(0, base), self.start_local) if number == 0 else 0

    def _size(self, number: int, base: int) -> int:
        if number == 0:
            return len(self._in_block(0, base)) - self._skipped(0, base)
        total = self._mask(number, base).bit_count() * len(self._times)
        return total if self._positions is None else len(_picked(self._positions, total))

    # Within a block --------------------------------------------------------------------------------------------------

    def _first_in(self, number: int, base: int, local: int) -> int | None:
        mask = self._mask(number, base)
        if self._positions is not None:
            found = self._picked_in(base, mask)
            index = bisect_left(found, local)
            return found[index] if index < len(found) else None
        day, time = divmod(local, DAY)
        later = mask >> max(0, day - base)
        if day >= base and later & 1:
            index = bisect_left(self._times, time)
            if index < len(self._times):
                return day * DAY + self._times[index]
            later &= ~1
        if not later:
            return None
        return (max(base, day) + (later & -later).bit_length() - 1) * DAY + self._times[0]

    def _last_in(self, number: int, base: int, local: int) -> int | None:
        mask = self._mask(number, base)
        if self._positions is not None:
            found = self._picked_in(base, mask)
            index = bisect_right(found, local)
            return found[index - 1] if index else None
        day, time = divmod(local, DAY)
        if day >= base and mask >> (day - base) & 1:
            index = bisect_right(self._times, time)
            if index:
                return day * DAY + self._times[index - 1]
        earlier = mask & ((1 << max(0, day - base)) - 1)
        return (base + earlier.bit_length() - 1) * DAY + self._times[-1] if earlier else None

    def _picked_in(self, base: int, mask: int) -> list[int]:
        """Give the local times that BYSETPOS picks from a block."""
        assert self._positions is not None
        picked = _picked(self._positions, mask.bit_count() * len(self._times))
        if not picked:
            return []
        days = _set_bits(mask)
        each = len(self._times)
        return [(base + days[index // each]) * DAY + self._times[index % each] for index in picked]

    def _in_block(self, number: int, base: int) -> Sequence[int]:
        mask = self._mask(number, base)
        if self._positions is not None:
            return self._picked_in(base, mask)
        return _Product([(base + day) * DAY for day in _set_bits(mask)], self._times)

    # The blocks ------------------------------------------------------------------------------------------------------

    def _block_of(self, local: int) -> int:
        """Give the number of the last block that begins at or before `local`."""
        day, interval = local // DAY, self.parts.interval
        if self.parts.frequency == "WEEKLY":
            return (day - self._start_week) // (7 * interval)
        shown = date_of(day)
        if self.parts.frequency == "YEARLY":
            return (shown.year - self._start_year) // interval
        step = 1 if self.parts.frequency == "DAILY" else interval
        return (shown.year * 12 + shown.month - 1 - self._start_month) // step

    def _base(self, number: int) -> int | None:
        """Give the first day of a block; None past the end of the searched years."""
        interval = self.parts.interval
        if self.parts.frequency == "WEEKLY":
            day = self._start_week + 7 * interval * number
            return day if day < _END_DAY else None
        if self.parts.frequency == "YEARLY":
            year, month = self._start_year + interval * number, 0
        else:
            year, month = divmod(self._start_month + number * (1 if self.parts.frequency == "DAILY" else interval), 12)
        return date(year, month + 1, 1).toordinal() - EPOCH_ORDINAL if year <= LAST_YEAR + 1 else None

    def _mask(self, number: int, base: int) -> int:
        if self.parts.frequency == "WEEKLY":
            return self._week_mask(base)
        if self.parts.frequency == "YEARLY":
            return self._year_mask(self._start_year + self.parts.interval * number, (base + 4) % 7)
        step = 1 if self.parts.frequency == "DAILY" else self.parts.interval
        year, month = divmod(self._start_month + number * step, 12)
        mask = self._month_mask(month + 1, (base + 4) % 7, month_days(year, month + 1))
        return mask & self._phase(base) if self.parts.frequency == "DAILY" else mask

    def _phase(self, base: int) -> int:
        """Give the days of a month that lie a whole number of intervals after the start."""
        interval = self.parts.interval
        first = (self._start_day - base) % interval
        return sum(1 << day for day in range(first, 31, interval)) if interval > 1 else -1

    def _week_mask(self, base: int) -> int:
        mask = 0
        for _, weekday in self._filled.weekdays:
            mask |= 1 << (weekday - self.parts.week_start) % 7
        if not self._filled.months:
            return mask
        first, last = date_of(base), date_of(base + 6)
        if first.month == last.month:
            return mask if first.month in self._filled.months else 0
        inside = 7 - last.day  # The days of the week that still belong to the first month.
        keep = (1 << inside) - 1 if first.month in self._filled.months else 0
        return mask & (keep | (_EVERY_WEEKDAY & ~((1 << inside) - 1) if last.month in self._filled.months else 0))

    def _month_mask(self, month: int, first_weekday: int, length: int) -> int:
        shape = (month, first_weekday, length)
        if shape not in self._month_masks:
            self._month_masks[shape] = _month_mask(self._filled, month, first_weekday, length)
        return self._month_masks[shape]

    def _year_mask(self, year: int, first_weekday: int) -> int:
        is_leap = month_days(year, 2) == 29
        shape = (first_weekday, is_leap)
        if shape not in self._year_masks:
            self._year_masks[shape] = _year_mask(self._filled, first_weekday, is_leap)
        return self._year_masks[shape]

    # In words --------------------------------------------------------------------------------------------------------

    @property
    def canonical(self) -> dict[str, Any]:
        """The parts in one order, the start as the zone's clock shows it."""
        shape: dict[str, Any] = {
            "type": "rrule",
            "rrule": rrule_text.rule(self.parts),
            "dtstart": self.start_text(),
            "tz": self.zone.name,
        }
        if self.exdates:
            shape["exdates"] = [utc_text(second) for second in sorted(self.exdates)]
        return shape

    def describe(self) -> str:
        """Say it in English."""
        return rrule_text.sentence(self._filled, self._times, len(self.exdates), self.zone)


_END_DAY = date(LAST_YEAR + 1, 1, 3).toordinal() - EPOCH_ORDINAL


class _Product(Sequence[int]):
    """Every time of day on every day, in order, without being written out."""

    def __init__(self, days: list[int], times: list[int]) -> None:
        self._days, self._times = days, times

    def __len__(self) -> int:
        return len(self._days) * len(self._times)

    def __getitem__(self, index: Any) -> Any:
        day, time = divmod(index, len(self._times))
        return self._days[day] + self._times[time]


def _with_defaults(parts: Parts, start: date) -> Parts:
    """Take from the start what the rule leaves open."""
    if parts.weekdays or parts.month_days or parts.year_days or parts.frequency == "DAILY":
        return parts
    if parts.frequency == "WEEKLY":
        return msgspec.structs.replace(parts, weekdays=((0, start.isoweekday() % 7),))
    months = parts.months or ((start.month,) if parts.frequency == "YEARLY" else ())
    return msgspec.structs.replace(parts, months=months, month_days=(start.day,))


def _times_and_positions(parts: Parts, time: int) -> tuple[list[int], tuple[int, ...] | None]:
    """Give the times of day, and the positions to pick. A day's own positions are settled here, for good."""
    hours, minutes = parts.hours or (time // 3600,), parts.minutes or (time // 60 % 60,)
    times = [hour * 3600 + minute * 60 + time % 60 for hour in hours for minute in minutes]
    if not parts.positions:
        return times, None
    if parts.frequency == "DAILY":
        return [times[index] for index in _picked(parts.positions, len(times))], None
    most = {"WEEKLY": len(parts.weekdays), "MONTHLY": 31, "YEARLY": 366}[parts.frequency] * len(times)
    return times, tuple(position for position in parts.positions if abs(position) <= most)


def _picked(positions: tuple[int, ...], total: int) -> list[int]:
    """Turn positions, counted from 1 or back from the end, into indexes that exist."""
    return sorted(
        {position - 1 if position > 0 else total + position for position in positions if abs(position) <= total}
    )


def _month_mask(parts: Parts, month: int, first_weekday: int, length: int) -> int:
    """Give the days of one shape of month; bit 0 is the 1st."""
    if parts.months and month not in parts.months:
        return 0
    mask = (1 << length) - 1
    if parts.month_days:
        mask &= _counted_days(parts.month_days, length)
    if parts.weekdays:
        mask &= _weekday_mask(parts.weekdays, first_weekday, length)
    return mask


def _year_mask(parts: Parts, first_weekday: int, is_leap: bool) -> int:
    """Give the days of one shape of year; bit 0 is 1 January."""
    # Without BYMONTH the n-th weekday is that of the year, not of the month.
    by_month = parts if parts.months else _without_weekdays(parts)
    mask, at = 0, 0
    for month in range(1, 13):
        length = month_days(2024 if is_leap else 2023, month)
        mask |= _month_mask(by_month, month, (first_weekday + at) % 7, length) << at
        at += length
    if parts.year_days:
        mask &= _counted_days(parts.year_days, at)
    if parts.weekdays and not parts.months:
        mask &= _weekday_mask(parts.weekdays, first_weekday, at)
    return mask


def _without_weekdays(parts: Parts) -> Parts:
    return msgspec.structs.replace(parts, weekdays=())


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


def _set_bits(mask: int) -> list[int]:
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found


def compile_rrule(text: str, dtstart: object, zone: Zone | None, exdates: Sequence[object]) -> Rrule:
    """Compile a recurrence rule. Raises TriggerError."""
    zone = zone or UTC_ZONE
    parts = rrule_parser.parse(text)
    start = stamps.read(dtstart, "dtstart", zone)
    if len(exdates) > EXDATES_MAX:
        raise TriggerError(
            "LIMIT", f"exdates has {len(exdates)} entries, over the limit of {EXDATES_MAX}; use a calendar", "exdates"
        )
    compiled = Rrule(parts, start, zone, [_exdate(value, index, zone) for index, value in enumerate(exdates)])
    if compiled.second_from(start) is None:
        message = f"rrule {text[:60]!r} has no occurrence from dtstart on; check COUNT, UNTIL and the BY parts"
        raise TriggerError("WINDOW_EMPTY", message, "rrule", expression=text)
    return compiled


def _exdate(value: object, index: int, zone: Zone) -> int:
    local, offset = stamps.read_local(value, f"exdates[{index}]")
    # A local time lost in a clock change stands for the moment it was moved to.
    return zone.first_instant(local) if offset is None else local - offset
