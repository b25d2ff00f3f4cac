"""Days of a zone: the day of a moment, the beginning of a day, and the days of clock changes."""

from __future__ import annotations

from datetime import date, datetime

from duly.domain.triggers.moments import DAY, EPOCH_ORDINAL, date_of, moment_of
from duly.domain.triggers.zones.zones import Zone


def day_in(zone: Zone, second: int) -> date:
    """Return the day that a moment lies in."""
    return date_of(zone.local_at(second) // DAY)


def begin_of(zone: Zone, day: date) -> datetime:
    """Return the first moment of a day; where midnight is skipped, that of the jump."""
    return moment_of(zone.first_instant((day.toordinal() - EPOCH_ORDINAL) * DAY))


def change_days(zone: Zone, since: datetime, until: datetime) -> list[date]:
    """Return the days between two moments on which clocks change."""
    first, last = round(since.timestamp()), round(until.timestamp())
    return sorted({day_in(zone, moment) for moment in zone.instants if first <= moment < last})
