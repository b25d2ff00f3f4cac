"""Counts of a cron expression's fires between two moments, by months and not one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duly.domain.triggers.moments import DAY, date_of, month_days

if TYPE_CHECKING:
    from duly.domain.triggers.cron.expression import Cron


def count_shown(rule: Cron, start: int, end: int) -> int:
    """Count the moments from `start` on and before `end` at which the clock shows a time of the rule."""
    zone, count = rule.zone, 0
    for piece in range(zone.piece_at(start), zone.piece_at(end) + 1):
        offset = zone.offsets[piece]
        count += count_local(rule, max(start, zone.instants[piece]) + offset, min(end, zone.piece_end(piece)) + offset)
    return count


def count_named(rule: Cron, start: int, end: int) -> int:
    """Count the fires from `start` on and before `end` of a rule that fires once for each of its local times."""
    zone = rule.zone
    count = count_local(rule, zone.local_reaching(start), zone.local_reaching(end))
    for piece in range(zone.piece_at(start - 1) + 1, zone.piece_at(end - 1) + 1):
        # The times that a clock jumps over, and the time it jumps to, are one fire.
        folded = count_local(rule, zone.firsts[piece], zone.starts[piece] + 1)
        count -= max(0, folded - 1)
    return count


def count_local(rule: Cron, start: int, end: int) -> int:
    """Count the local times of a rule from `start` on and before `end`."""
    if end <= start:
        return 0
    (first_day, first_time), (last_day, last_time) = divmod(start, DAY), divmod(end, DAY)
    days = _days_between(rule, first_day, last_day)
    whole = days * rule.hours.bit_count() * rule.minutes.bit_count() * rule.seconds.bit_count()
    before = _times_before(rule, first_time) if _days_between(rule, first_day, first_day + 1) else 0
    after = _times_before(rule, last_time) if _days_between(rule, last_day, last_day + 1) else 0
    return whole - before + after


def _days_between(rule: Cron, start: int, end: int) -> int:
    """Count the days that a rule picks from `start` on and before `end`, month by month."""
    count = 0
    while start < end:
        date = date_of(start)
        length = month_days(date.year, date.month)
        first = start - date.day + 1
        if rule.months >> date.month & 1:
            days = rule.masks.days((first + 4) % 7, length) >> date.day
            count += (days & (1 << min(end - start, 31)) - 1).bit_count()
        start = first + length
    return count


def _times_before(rule: Cron, time: int) -> int:
    """Count the times of day of a rule before `time`."""
    (hour, rest), seconds = divmod(time, 3600), rule.seconds.bit_count()
    minute, second = divmod(rest, 60)
    count = _below(rule.hours, hour) * rule.minutes.bit_count() * seconds
    if rule.hours >> hour & 1:
        count += _below(rule.minutes, minute) * seconds
        if rule.minutes >> minute & 1:
            count += _below(rule.seconds, second)
    return count


def _below(mask: int, value: int) -> int:
    return (mask & (1 << value) - 1).bit_count()
