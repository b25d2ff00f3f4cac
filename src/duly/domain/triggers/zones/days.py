"""Days of a zone: which one a moment lies in, when one begins, and on which of them clocks are set."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from duly.domain.triggers.zones.zones import Zone

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1)
_DAY_SECONDS = 86_400


def day_in(zone: Zone, second: int) -> date:
    """Give the day that a moment lies in."""
    return _EPOCH_DAY + timedelta(days=zone.local_at(second) // _DAY_SECONDS)


def begin_of(zone: Zone, day: date) -> datetime:
    """Give the first moment of a day; where midnight is jumped over, that of the jump."""
    return _EPOCH + timedelta(seconds=zone.first_instant((day - _EPOCH_DAY).days * _DAY_SECONDS))


def change_days(zone: Zone, since: datetime, until: datetime) -> list[date]:
    """Give the days between two moments on which clocks are set."""
    first, last = round(since.timestamp()), round(until.timestamp())
    return sorted({day_in(zone, moment) for moment in zone.instants if first <= moment < last})
