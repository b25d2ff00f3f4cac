"""When a job fires, in words: a sentence, and the next moments in UTC and in local time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from duly.domain.triggers.interval import Interval

FIRES_SHOWN = 3


def next_fires(every: timedelta, anchor: datetime, first: datetime) -> list[datetime]:
    """Give the first fire and those that follow it."""
    interval, fires = Interval(every, anchor), [first]
    while len(fires) < FIRES_SHOWN:
        fires.append(interval.next_after(fires[-1]))
    return fires


def fire_lines(fires: Sequence[datetime]) -> list[str]:
    """Write each moment on a line of its own, in UTC and as the local clock will show it."""
    return [f"{'next' if number == 0 else 'then':6}{both_clocks(fire)}" for number, fire in enumerate(fires)]


def both_clocks(moment: datetime) -> str:
    """Write a moment in UTC and in local time."""
    utc, local = moment.astimezone(UTC), moment.astimezone()
    # The local day is repeated only where it differs.
    day = "" if local.date() == utc.date() else f"{local:%Y-%m-%d} "
    return f"{utc:%Y-%m-%d %H:%M:%S} UTC   {day}{local:%H:%M:%S} {local.tzname()} here"
