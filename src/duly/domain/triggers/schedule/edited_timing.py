"""The timing of a job whose definition is changed: kept where the change does not touch it, else new from the change on."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from duly.domain.triggers.calendars import Calendar
from duly.domain.triggers.elapsed import FixedDelay
from duly.domain.triggers.on_event import NEVER, is_on_event
from duly.domain.triggers.schedule.density import check_density
from duly.domain.triggers.schedule.planning import arm
from duly.domain.triggers.schedule.schedules import Schedule
from duly.domain.triggers.schedule.timing import AFTER_END, Timing, schedule_of, timing_of


class Before(msgspec.Struct, frozen=True):
    """The current timing of a job: as stored, and compiled."""

    stored: str | None
    cohort: int | None
    every_seconds: int | None
    anchor_at: datetime | None
    schedule: Schedule
    pending_at: datetime


def edited_timing(
    before: Before,
    shape: Mapping[str, Any],
    *,
    job_id: str,
    now: datetime,
    floor: datetime | None,
    calendars: Mapping[str, Calendar],
    least_period: int | None = None,
) -> Timing:
    """Compile a changed schedule. Raises TriggerError, also where it is denser than its tenant now allows.

    Its first fire comes after `now`, and after `floor`, which cannot be undone; None when the timing is unchanged.
    """
    kept = _as_before(shape, before.stored)
    since = now if before.pending_at == NEVER else min(now, before.pending_at)  # the pending fire may be the last
    timing = timing_of(kept, job_id=job_id, now=since, calendars=calendars)
    if _is_unchanged(timing, shape, before):
        return msgspec.structs.replace(timing, first_at=None, anchor_at=before.anchor_at)
    if since < now:
        timing = timing_of(kept, job_id=job_id, now=now, calendars=calendars)
    schedule = schedule_of(timing.schedule, timing.every_seconds, timing.anchor_at or now, calendars)
    check_density(schedule.trigger, now, least_period)
    if timing.overlap == AFTER_END:
        return timing
    if timing.every_seconds is not None and timing.anchor_at is None:
        timing = msgspec.structs.replace(timing, anchor_at=now.replace(microsecond=0) + timedelta(seconds=1))
    schedule = schedule_of(timing.schedule, timing.every_seconds, timing.anchor_at, calendars)
    first_at, window = arm(schedule, max(floor or now, now)) or (timing.first_at, timing.window)
    return msgspec.structs.replace(timing, first_at=first_at, window=window)


def _as_before(shape: Mapping[str, Any], stored: str | None) -> Mapping[str, Any]:
    """Resolve a trigger requested in the same words as before to its stored form, not to what it would be now."""
    kept = {} if stored is None else msgspec.json.decode(stored)
    if "requested" in kept and kept["requested"] == shape.get("trigger"):
        return {**shape, "requested": kept["requested"], "trigger": kept["trigger"]}
    return shape


def _is_unchanged(timing: Timing, shape: Mapping[str, Any], before: Before) -> bool:
    """Return whether the new timing has the same moments as the old one."""
    if is_on_event(shape):
        return timing.cohort == before.cohort
    was_delay = isinstance(before.schedule.trigger, FixedDelay)
    same_anchor = shape["trigger"].get("anchor") is None or timing.anchor_at == before.anchor_at
    if timing.overlap == AFTER_END:  # its period may differ; the store moves the pending fire by as much
        return was_delay and same_anchor
    if timing.cohort is not None:
        return timing.cohort == before.cohort
    return before.every_seconds == timing.every_seconds and same_anchor and not was_delay
