"""Pending fires after a change of their zone's rules.

The occurrences before the pending one were handled by the old rules. A *fixed* schedule identifies an occurrence by its
local time, so the next is the one after the local time of the last. A *wildcard* or elapsed one keeps its rhythm in
real time, so it goes on after the moment of the last. Either way, a past moment does not come again.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from duly.domain.triggers.any_of import AnyOf
from duly.domain.triggers.compiled import Compiled
from duly.domain.triggers.moments import moment_of, second_of
from duly.domain.triggers.schedule.schedules import Schedule

MOVED_MIN = timedelta(minutes=1)
_FINEST = timedelta(microseconds=1)


def zones_of(schedule: Schedule) -> frozenset[str]:
    """Return the zones that decide when a schedule fires."""
    clocks = [trigger.zone.name for trigger in _members(schedule.trigger)]
    return frozenset([*clocks, *(use.calendar.zone.name for use in schedule.uses)])


def pending_after_change(old: Schedule, new: Schedule, pending_at: datetime, created_at: datetime) -> datetime | None:
    """Return the occurrence that replaces a pending one; if it is past, it is a misfire. None: there is none."""
    # Nothing before the creation of the job counts; but a one-shot may be past by its grace period.
    least = min(created_at, pending_at - _FINEST)
    found = []
    for was, becomes in zip(_parts(old), _parts(new), strict=True):
        after = max(_dealt_with(was, becomes, pending_at) or least, least)
        fire = becomes.next_after(after)
        if fire is not None:
            found.append(fire.scheduled_at)
    return min(found, default=None)


def is_listed(was_at: datetime, becomes_at: datetime | None) -> bool:
    """Return whether a fire moved so far that the owner of its job wants to know."""
    return becomes_at is None or abs(becomes_at - was_at) > MOVED_MIN


def _dealt_with(old: Schedule, new: Schedule, pending_at: datetime) -> datetime | None:
    """Return the moment up to which everything before the pending occurrence lies, by the new rules too."""
    last = old.latest_at_or_before(pending_at - _FINEST)
    if last is None:
        return None
    if new.trigger.kind != "fixed":
        return last.scheduled_at
    local = old.trigger.zone.local_at(second_of(last.scheduled_at))
    return max(last.scheduled_at, moment_of(new.trigger.zone.first_instant(local)))


def _parts(schedule: Schedule) -> Iterator[Schedule]:
    """Split a schedule whose trigger is a union into its members, each with a zone of its own."""
    for member in _members(schedule.trigger):
        yield msgspec.structs.replace(schedule, trigger=member)


def _members(trigger: Compiled) -> tuple[Compiled, ...]:
    return trigger.members if isinstance(trigger, AnyOf) else (trigger,)
