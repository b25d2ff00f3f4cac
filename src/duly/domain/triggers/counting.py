"""Many fires at once: those between two moments, how many they are, and where the last so many begin."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

from duly.domain.triggers.schedules import Schedule

# Counting one by one stops here, so that no question takes long.
COUNT_MAX = 100_000
_FINEST = timedelta(microseconds=1)
_CHUNK = 10_000


def fires_between(schedule: Schedule, start: datetime, end: datetime) -> Iterator[datetime]:
    """Give the fires from `start` on and before `end`, in order."""
    fire = schedule.next_after(start - _FINEST)
    while fire is not None and fire.scheduled_at < end:
        yield fire.scheduled_at
        fire = schedule.next_after(fire.scheduled_at)


def count_between(schedule: Schedule, start: datetime, end: datetime) -> int:
    """Count the fires from `start` on and before `end`; from COUNT_MAX on it is a lower bound."""
    if not schedule.uses:
        start = start if schedule.start is None else max(start, schedule.start)
        end = end if schedule.end is None else min(end, schedule.end)
        return schedule.trigger.count_between(start, end, COUNT_MAX)
    return sum(1 for _ in islice(fires_between(schedule, start, end), COUNT_MAX))


def start_of_last(schedule: Schedule, first: datetime, last: datetime, limit: int) -> datetime:
    """Give the fire at which the last `limit` of those from the fire `first` to the fire `last` begin."""
    span = timedelta(hours=max(1, _CHUNK // schedule.trigger.fires_per_hour_max))
    end = last
    while True:
        start = max(first, end - span)
        found = list(fires_between(schedule, start, end + _FINEST))
        if len(found) >= limit:
            return found[-limit]
        earlier = schedule.latest_at_or_before(start - _FINEST) if start > first else None
        if earlier is None:
            return first
        limit, end = limit - len(found), earlier.scheduled_at
