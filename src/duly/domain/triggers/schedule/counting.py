"""Many fires at once: those between two moments, their number, what calendars block, and where the last so many begin.

Counting crosses whole spans of time at once: a span ends where a calendar's verdict may change.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Literal

import msgspec

from duly.domain.triggers import calendars
from duly.domain.triggers.moments import moment_of, second_of
from duly.domain.triggers.schedule.schedules import Schedule

# A count that has to walk the occurrences ends after so many steps, so that it never takes long.
COUNT_MAX = 30_000
_STRETCHES_MAX = 5_000
_CHUNK = 2_000
_FINEST = timedelta(microseconds=1)
Verdict = Literal["run", "defer", "skip"]


class Count(msgspec.Struct, frozen=True):
    """A number of fires; `is_partial`: a lower bound, because counting stopped early."""

    number: int
    is_partial: bool = False


class Blocked(msgspec.Struct, frozen=True):
    """Occurrences that calendars block: the first, the last, and how many."""

    first: datetime
    last: datetime
    count: int


def fires_between(schedule: Schedule, start: datetime, end: datetime) -> Iterator[datetime]:
    """Return the fires from `start` on and before `end`, in order."""
    if not schedule.uses:
        yield from schedule.trigger.between(*schedule.within(start, end))
        return
    fire = schedule.next_after(start - _FINEST)
    while fire is not None and fire.scheduled_at < end:
        yield fire.scheduled_at
        fire = schedule.next_after(fire.scheduled_at)


def count_between(schedule: Schedule, start: datetime, end: datetime) -> int:
    """Count the fires from `start` on and before `end`; a lower bound where that would take long."""
    return tally(schedule, start, end).number


def tally(schedule: Schedule, start: datetime, end: datetime) -> Count:
    """Count the fires from `start` on and before `end`: exactly for cron and fixed periods, for others as far as can be
    walked.

    A count also ends beyond 5,000 spans of its calendars.
    """
    most = _most(schedule)
    if not schedule.uses:
        count = _count(schedule, start, end)
        return Count(count, most is not None and count >= most)
    first = schedule.next_after(start - _FINEST)
    if first is None:
        return Count(0)
    count, is_owed, reached = 0, first.deferred_by is not None, first.scheduled_at
    for begin, until, verdict in _stretches(schedule, first.scheduled_at, end):
        reached = until
        if verdict == "run":
            # Deferred occurrences fire as the span begins, together with what is due then.
            count += is_owed and _first_within(schedule, begin, begin + _FINEST) is None
            count += _count(schedule, begin, until, count)
            is_owed = False
        elif verdict == "defer":
            is_owed = is_owed or _first_within(schedule, begin, until) is not None
        if most is not None and count >= most:
            return Count(count, is_partial=True)
    return Count(count, reached < end)


def blocked_between(schedule: Schedule, start: datetime, end: datetime) -> Blocked | None:
    """Sum up the occurrences from `start` on and before `end` that a calendar skips, without those it defers."""
    skipping = [(begin, until) for begin, until, verdict in _stretches(schedule, start, end) if verdict == "skip"]
    firsts = (_first_within(schedule, begin, until) for begin, until in skipping)
    lasts = (_last_within(schedule, begin, until) for begin, until in reversed(skipping))
    first, last = next(filter(None, firsts), None), next(filter(None, lasts), None)
    if first is None or last is None:
        return None
    count = 0
    for begin, until in skipping:
        count += _count(schedule, begin, until, count)
    return Blocked(first, last, count)


def last_fires(schedule: Schedule, first: datetime, last: datetime, limit: int) -> tuple[datetime, int]:
    """Return the fire at which the last `limit` of those from the fire `first` to the fire `last` begin, and their number."""
    span = timedelta(hours=max(1, _CHUNK // schedule.trigger.fires_per_hour_max))
    count, end = 0, last
    while True:
        start = max(first, end - span)
        found = list(fires_between(schedule, start, end + _FINEST))
        if count + len(found) >= limit:
            return found[count - limit], limit
        count += len(found)
        earlier = schedule.latest_at_or_before(start - _FINEST) if start > first else None
        if earlier is None:
            return first, count
        end = earlier.scheduled_at


def _first_within(schedule: Schedule, start: datetime, end: datetime) -> datetime | None:
    start, end = schedule.within(start, end)
    found = schedule.trigger.next_after(start - _FINEST)
    return found if found is not None and found < end else None


def _last_within(schedule: Schedule, start: datetime, end: datetime) -> datetime | None:
    start, end = schedule.within(start, end)
    found = schedule.trigger.latest_at_or_before(end - _FINEST)
    return found if found is not None and found >= start else None


def _count(schedule: Schedule, start: datetime, end: datetime, counted: int = 0) -> int:
    """Count the occurrences of the trigger regardless of calendars, given the number counted already."""
    most = (_most(schedule) or COUNT_MAX) - counted
    return schedule.trigger.count_between(*schedule.within(start, end), max(0, most))


def _most(schedule: Schedule) -> int | None:
    """Return the maximum number of occurrences to count where they have to be walked."""
    steps = schedule.trigger.steps_per_count
    return COUNT_MAX // steps if steps else None


def _stretches(schedule: Schedule, start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime, Verdict]]:
    """Split the time between two moments into spans with one verdict each; the rest is left out where there are too many."""
    # Each step asks every calendar and every member of the trigger.
    requested = max(len(schedule.uses), schedule.trigger.steps_per_count) // 2
    return islice(_all_stretches(schedule, start, end), _STRETCHES_MAX // max(1, requested))


def _all_stretches(schedule: Schedule, start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime, Verdict]]:
    while start < end:
        second = second_of(start)
        changes = [change for use in schedule.uses if (change := use.changes_after(second)) is not None]
        until = min(end, moment_of(min(changes))) if changes else end
        yield start, until, _verdict(schedule, second)
        start = until


def _verdict(schedule: Schedule, second: int) -> Verdict:
    blocking = calendars.blockers(schedule.uses, second)
    if not blocking:
        return "run"
    return "defer" if all(use.on_hit == "defer" for use in blocking) else "skip"
