"""The minimum distance between occurrences of a trigger, for tenants with a limit on it.

Cron and fixed periods are exact, in local time: an hour that the clock skips brings nothing closer together. Others are
walked for their first occurrences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise

from duly.domain.duration import to_iso
from duly.domain.triggers.any_of import AnyOf
from duly.domain.triggers.compiled import Compiled
from duly.domain.triggers.cron.expression import Cron
from duly.domain.triggers.elapsed import FixedRate
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.moments import DAY, EPOCH_ORDINAL, month_days

_WALKED = 100
_FINEST = timedelta(microseconds=1)
_END = datetime.max.replace(tzinfo=UTC)
# After as many years, weekdays and leap days repeat in the same order.
_CYCLE = range(2000, 2029)


def check_density(trigger: Compiled, now: datetime, least_seconds: int | None) -> None:
    """Refuse a trigger whose occurrences can be closer together than allowed. Raises TriggerError."""
    if least_seconds is None:
        return
    gap = least_gap(trigger, now)
    if gap is None or gap >= least_seconds:
        return
    shortest, allowed = to_iso(timedelta(seconds=gap)), to_iso(timedelta(seconds=least_seconds))
    message = (
        f"trigger: its occurrences can be {shortest} apart, and this tenant's limit is {allowed} apart or more;"
        " fire less often, or have the operator lower least_period with duly tenants limits"
    )
    raise TriggerError("LIMIT", message, "trigger", allowed)


def least_gap(trigger: Compiled, now: datetime) -> int | None:
    """Return the smallest distance between two occurrences in seconds; None when there is only one."""
    if isinstance(trigger, FixedRate):
        return None if trigger.count == 1 else trigger.every
    if isinstance(trigger, Cron):
        return _least_of_cron(trigger)
    members = trigger.members if isinstance(trigger, AnyOf) else ()
    return _least((*(least_gap(member, now) for member in members), _walked(trigger, now)))


def _walked(trigger: Compiled, now: datetime) -> int | None:
    moments = islice(trigger.between(now + _FINEST, _END), _WALKED)
    return _least(int((later - earlier).total_seconds()) for earlier, later in pairwise(moments))


def _least_of_cron(rule: Cron) -> int:
    """Compare the closest values of each field, from the seconds up; the span of the finer fields lies in between."""
    within: int | None = None
    span = 0
    for mask, unit in ((rule.seconds, 1), (rule.minutes, 60), (rule.hours, 3600)):
        values = [value for value in range(60) if mask >> value & 1]
        closest = _least(later - earlier for earlier, later in pairwise(values))
        within = _least((within, None if closest is None else closest * unit - span))
        span += (values[-1] - values[0]) * unit
    across = _least_days(rule) * DAY - span
    return across if within is None else min(within, across)


def _least_days(rule: Cron) -> int:
    """Return the smallest distance between two days that a rule picks."""
    least = len(_CYCLE) * 366
    last: int | None = None
    for day in _days(rule):
        if last is not None:
            least = min(least, day - last)
        if least == 1:
            break
        last = day
    return least


def _days(rule: Cron) -> Iterator[int]:
    for year in _CYCLE:
        for month in (month for month in range(1, 13) if rule.months >> month & 1):
            length = month_days(year, month)
            first = date(year, month, 1).toordinal() - EPOCH_ORDINAL
            days = rule.masks.days((first + 4) % 7, length)
            yield from (first + day - 1 for day in range(1, length + 1) if days >> day & 1)


def _least(values: Iterable[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)
