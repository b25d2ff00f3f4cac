"""The period of a fixed rate: parsing it, and writing it in English."""

from __future__ import annotations

from datetime import timedelta

from duly.domain.duration import Duration, parse, to_iso
from duly.domain.errors import InvalidSchedule

EVERY_MIN = timedelta(seconds=1)
_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def parse_every(value: Duration) -> timedelta:
    """Parse an interval's period. Raises InvalidSchedule when it is not a whole number of seconds, at least one."""
    every = parse(value, "every")
    if every < EVERY_MIN:
        raise InvalidSchedule(f"every {value!r} is shorter than one second; the shortest is PT1S")
    if every.microseconds:
        raise InvalidSchedule(
            f"every {value!r} is not a whole number of seconds; write {to_iso(timedelta(seconds=round(every.total_seconds())))}"
        )
    return every


def describe_every(every: timedelta) -> str:
    """Write a period in English, in the largest unit that divides it."""
    seconds = int(every.total_seconds())
    for unit, size in _UNITS:
        if seconds % size == 0:
            count = seconds // size
            return f"Every {unit}" if count == 1 else f"Every {count} {unit}s"
    raise AssertionError(every)
