"""RRULE: recurrence by the calendar, from a start, with times of day on the days that the blocks give."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import date
from typing import Any

import msgspec

from duly.domain.triggers import stamps
from duly.domain.triggers.english.phrases import bits
from duly.domain.triggers.errors import TriggerError, shown
from duly.domain.triggers.local_rule import StartedRule
from duly.domain.triggers.moments import DAY, date_of, utc_text
from duly.domain.triggers.rrule import blocks, parser
from duly.domain.triggers.rrule import text as rrule_text
from duly.domain.triggers.rrule.parser import Parts
from duly.domain.triggers.zones.zones import UTC_ZONE, Zone

EXDATES_MAX = 500
# Positions within the weeks of certain months can only be counted week by week.
COUNT_OF_PICKED_WEEKS_MAX = 500
_BEYOND = 2**60


class Rrule(StartedRule):
    """A recurrence rule from its start on, less its exceptions."""

    def __init__(self, parts: Parts, start: int, zone: Zone, exdates: Sequence[int]) -> None:
        super().__init__(start, zone)
        self.parts = parts
        self.exdates = frozenset(exdates)
        start_day = self.start_local // DAY
        self._filled = _with_defaults(parts, date_of(start_day))
        self._blocks = blocks.blocks_of(self._filled, start_day)
        self._times, self._positions = _times_and_positions(self._filled, self.start_local % DAY)
        self._is_empty = not self._times or self._positions == ()
        self._least_days = self._days_needed()
        self.fires_per_hour_max = max(1, len(parts.minutes))
        self._last_local = _BEYOND
        if parts.count is not None and not self._is_empty:
            self._last_local = self._nth_local(parts.count)

    def _days_needed(self) -> int:
        """Return how many days a block must have before anything is picked from it."""
        if not self._positions or not self._times:
            return 1
        return -(-min(abs(position) for position in self._positions) // len(self._times))

    def second_from(self, second: int) -> int | None:
        """Return the first occurrence at or after `second`, which is not an exception."""
        found = super().second_from(second)
        while found is not None and found in self.exdates:
            found = super().second_from(found + 1)
        return None if found is None or (self.parts.until is not None and found > self.parts.until) else found

    def second_until(self, second: int) -> int | None:
        """Return the last occurrence at or before `second`, which is not an exception."""
        found = super().second_until(second if self.parts.until is None else min(second, self.parts.until))
        while found is not None and found in self.exdates:
            found = super().second_until(found - 1)
        return found

    def local_from(self, local: int, limit: int) -> int | None:
        if self._is_empty:
            return None
        local, limit = max(local, self.start_local), min(limit, self._last_local + 1)
        block = self._blocks.find(self._blocks.number_of(local // DAY), self._least_days)
        while block is not None and block[1] * DAY < limit:
            number, base, mask = block
            found = self._first_in(base, mask, local)
            if found is not None:
                return found if found < limit else None
            block = self._blocks.find(number + 1, self._least_days)
        return None

    def local_until(self, local: int, floor: int) -> int | None:
        local, floor = min(local, self._last_local), max(floor, self.start_local)
        if self._is_empty or local < floor:
            return None
        block = self._blocks.find_back(self._blocks.number_of(local // DAY), self._least_days)
        while block is not None:
            number, base, mask = block
            found = self._last_in(base, mask, local)
            if found is not None:
                return found if found >= floor else None
            block = self._blocks.find_back(number - 1, self._least_days)
        return None

    def _nth_local(self, count: int) -> int:
        """Return the local time of the last of `count` occurrences; None if the searched time ends before it."""
        left = count
        block = self._blocks.find(0, self._least_days)
        while block is not None:
            number, base, mask = block
            skipped = bisect_left(self._all_in(base, mask), self.start_local) if number == 0 else 0
            size = self._size(mask) - skipped
            if size >= left:
                return int(self._all_in(base, mask)[skipped + left - 1])
            left -= size
            block = self._blocks.find(number + 1, self._least_days)
        return _BEYOND

    def _size(self, mask: int) -> int:
        total = mask.bit_count() * len(self._times)
        return total if self._positions is None else len(_picked(self._positions, total))

    def _first_in(self, base: int, mask: int, local: int) -> int | None:
        """Return the first local time in a block at or after `local`."""
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

    def _last_in(self, base: int, mask: int, local: int) -> int | None:
        """Return the last local time in a block at or before `local`."""
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
        """Return the local times that BYSETPOS picks from a block."""
        assert self._positions is not None
        each = len(self._times)
        picked = _picked(self._positions, mask.bit_count() * each)
        if not picked:
            return []
        days = bits(mask)
        return [(base + days[index // each]) * DAY + self._times[index % each] for index in picked]

    def _all_in(self, base: int, mask: int) -> Sequence[int]:
        if self._positions is not None:
            return self._picked_in(base, mask)
        return _Product([(base + day) * DAY for day in bits(mask)], self._times)

    @property
    def canonical(self) -> dict[str, Any]:
        """The parts in canonical order, the start in the zone's local time."""
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
        return rrule_text.sentence(self._filled, self._times, len(self.exdates), self.zone)


class _Product(Sequence[int]):
    """Every time of day on every day, in order, without materializing them."""

    def __init__(self, days: list[int], times: list[int]) -> None:
        self._days, self._times = days, times

    def __len__(self) -> int:
        return len(self._days) * len(self._times)

    def __getitem__(self, index: Any) -> Any:
        day, time = divmod(index, len(self._times))
        return self._days[day] + self._times[time]


def _with_defaults(parts: Parts, start: date) -> Parts:
    """Fill in from the start what the rule leaves open."""
    if parts.weekdays or parts.month_days or parts.year_days or parts.frequency == "DAILY":
        return parts
    if parts.frequency == "WEEKLY":
        return msgspec.structs.replace(parts, weekdays=((0, start.isoweekday() % 7),))
    months = parts.months or ((start.month,) if parts.frequency == "YEARLY" else ())
    return msgspec.structs.replace(parts, months=months, month_days=(start.day,))


def _times_and_positions(parts: Parts, time: int) -> tuple[list[int], tuple[int, ...] | None]:
    """Return the times of day, and the positions to pick. Positions within a day are resolved here."""
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


def compile_rrule(text: str, dtstart: object, zone: Zone | None, exdates: Sequence[object]) -> Rrule:
    """Compile a recurrence rule. Raises TriggerError."""
    zone = zone or UTC_ZONE
    parts = parser.parse(text)
    start = stamps.read(dtstart, "dtstart", zone)
    _check_limits(parts, exdates)
    compiled = Rrule(parts, start, zone, [_exdate(value, index, zone) for index, value in enumerate(exdates)])
    if compiled.second_from(start) is None:
        message = f"rrule {shown(text)} has no occurrence from dtstart on; check COUNT, UNTIL and the BY parts"
        raise TriggerError("WINDOW_EMPTY", message, "rrule", expression=text)
    return compiled


def _check_limits(parts: Parts, exdates: Sequence[object]) -> None:
    if len(exdates) > EXDATES_MAX:
        message = f"exdates has {len(exdates)} entries, over the limit of {EXDATES_MAX}; use a calendar"
        raise TriggerError("LIMIT", message, "exdates")
    is_picked = parts.frequency == "WEEKLY" and parts.positions and parts.months
    if is_picked and (parts.count or 0) > COUNT_OF_PICKED_WEEKS_MAX:
        message = (
            f"rrule: with WEEKLY, BYSETPOS and BYMONTH a COUNT up to {COUNT_OF_PICKED_WEEKS_MAX} is taken; use UNTIL"
        )
        raise TriggerError("LIMIT", message, "rrule")


def _exdate(value: object, index: int, zone: Zone) -> int:
    local, offset = stamps.read_local(value, f"exdates[{index}]")
    # A local time skipped by a clock change stands for the moment it was moved to.
    return zone.first_instant(local) if offset is None else local - offset
