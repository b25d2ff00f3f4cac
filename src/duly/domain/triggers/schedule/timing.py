"""The timing of a job as stored: when its next fire is due, and the fields that staging needs.

A plain interval is stored in closed form, so that the database arms its next fire alone. All others belong to a cohort,
whose next moments are computed in Python, once for all its jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from duly.domain.duration import to_iso
from duly.domain.triggers.at import At
from duly.domain.triggers.calendars import Calendar, read_calendar
from duly.domain.triggers.elapsed import FixedDelay, FixedRate
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.moments import moment_of, utc_text
from duly.domain.triggers.on_event import NEVER, event_cohort, event_schedule, is_on_event
from duly.domain.triggers.schedule.planning import cohort_of, stored_shape
from duly.domain.triggers.schedule.reading import compile_schedule, load_schedule
from duly.domain.triggers.schedule.schedules import GRACE_SECONDS, Schedule

AFTER_END = "after_end"
# Options that keep a plain interval in closed form.
_CLOSED_KEYS = {"trigger", "overlap", "max_runs", "pause_on_failure", "misfire"}


class Timing(msgspec.Struct, frozen=True):
    """The timing of a job, as the store takes it. Without `first_at` the database starts at its next whole second."""

    schedule: str | None
    cohort: int | None = None
    every_seconds: int | None = None
    anchor_at: datetime | None = None
    first_at: datetime | None = None
    window: int = 0
    jitter: str | None = None
    overlap: str = "skip"
    overlap_limit: int | None = None
    max_runs: int | None = None
    grace_seconds: int | None = None
    watch: int | None = None


def every_shape(every_seconds: int, anchor: datetime | None = None) -> dict[str, Any]:
    """Return the shape of a plain interval."""
    trigger: dict[str, Any] = {"type": "interval", "every": to_iso(timedelta(seconds=every_seconds))}
    if anchor is not None:
        trigger["anchor"] = anchor.isoformat()
    return {"trigger": trigger}


def calendars_in(shape: Mapping[str, Any]) -> list[str]:
    """Return the names of the calendars in a shape, as far as it can be read.

    No calendar's name contains a NUL, and PostgreSQL accepts none.
    """
    given = shape.get("calendars")
    if not isinstance(given, Sequence) or isinstance(given, str):
        return []
    named = [use["name"] for use in given if isinstance(use, Mapping) and isinstance(use.get("name"), str)]
    return [name for name in named if "\0" not in name]


def is_closed(shape: Mapping[str, Any]) -> bool:
    """Return whether a shape is an interval that the database can arm alone, without clock changes and calendars."""
    trigger, misfire = shape.get("trigger"), shape.get("misfire")
    return (
        isinstance(trigger, Mapping)
        and trigger.get("type") == "interval"
        and trigger.get("mode") in (None, "fixed_rate")
        and trigger.get("tz") is None
        and _given(shape) <= _CLOSED_KEYS
        and (misfire is None or (isinstance(misfire, Mapping) and _given(misfire) <= {"grace"}))
    )


def timing_of(
    shape: Mapping[str, Any],
    *,
    job_id: str | None,
    now: datetime,
    calendars: Mapping[str, Calendar],
    least_period: int | None = None,
) -> Timing:
    """Compile a schedule that is created at `now`. Raises TriggerError, which carries every problem.

    `least_period` is the minimum distance of its occurrences, in seconds. The trigger may be a stored one, with the
    requested one in `requested`.
    """
    if is_on_event(shape):
        return Timing(_json(shape), event_cohort(shape), first_at=NEVER, overlap="allow")
    requested, shape = shape.get("requested"), {key: value for key, value in shape.items() if key != "requested"}
    schedule = compile_schedule(shape, job_id=job_id, now=now, known_calendars=calendars, least_period=least_period)
    if isinstance(schedule.trigger, FixedRate) and is_closed(shape) and requested is None:
        return _closed(shape, schedule, schedule.trigger)
    stored = _json(stored_shape(shape, schedule) | ({} if requested is None else {"requested": requested}))
    if isinstance(schedule.trigger, FixedDelay):
        return _after_end(stored, schedule, schedule.trigger, now)
    return _of_cohort(stored, schedule, now)


def _closed(shape: Mapping[str, Any], schedule: Schedule, trigger: FixedRate) -> Timing:
    """Return the timing of an interval that the database arms alone."""
    anchor = moment_of(trigger.anchor) if shape["trigger"].get("anchor") is not None else None
    kept = None if _given(shape) == {"trigger"} else _json(shape)
    return Timing(kept, every_seconds=trigger.every, anchor_at=anchor, first_at=anchor, **_policies(schedule))


def _after_end(stored: str, schedule: Schedule, trigger: FixedDelay, now: datetime) -> Timing:
    """Return the timing of a schedule that counts from the end of its runs."""
    anchor = moment_of(trigger.anchor)
    first = max(anchor, schedule.start or anchor)
    policies = _policies(schedule) | {"overlap": AFTER_END, "overlap_limit": None}
    return Timing(stored, every_seconds=trigger.every, anchor_at=first, first_at=max(first, now), **policies)


def _of_cohort(stored: str, schedule: Schedule, now: datetime) -> Timing:
    """Return the timing that is computed for all jobs of a cohort. Raises TriggerError when no fire is left."""
    # One-shots may be past by the grace period.
    since = now - timedelta(seconds=schedule.misfire.grace_seconds) if isinstance(schedule.trigger, At) else now
    first = schedule.first_from(since)
    if first is None:
        raise TriggerError(
            "WINDOW_EMPTY", "trigger: it has no future occurrence; give a later end or another trigger", "trigger"
        )
    first_at, window = first.scheduled_at, schedule.jitter_window(first.scheduled_at)
    jitter = None if schedule.jitter is None else schedule.jitter.per
    return Timing(stored, cohort_of(schedule), None, None, first_at, window, jitter, **_policies(schedule))


def _policies(schedule: Schedule) -> dict[str, Any]:
    """Return the fields that every kind of timing has beside its moments."""
    grace = schedule.misfire.grace_seconds
    return {
        "overlap": schedule.overlap.policy,
        "overlap_limit": schedule.overlap.limit,
        "max_runs": schedule.max_runs,
        "grace_seconds": None if grace == GRACE_SECONDS else grace,
        "watch": schedule.pause_on_failure,
    }


def schedule_of(
    stored: str | None, every_seconds: int | None, anchor_at: datetime | None, calendars: Mapping[str, Calendar]
) -> Schedule:
    """Compile the stored schedule of a job."""
    shape: dict[str, Any] = {} if stored is None else msgspec.json.decode(stored)
    if is_on_event(shape):
        return event_schedule(shape)
    is_delay = shape.get("trigger", {}).get("mode") == "fixed_delay"
    if every_seconds is not None and anchor_at is not None and not is_delay:
        anchored = {"type": "interval", "every": f"PT{every_seconds}S", "anchor": utc_text(int(anchor_at.timestamp()))}
        shape = {**shape, "trigger": anchored}
    return load_schedule(shape, calendars)


def read_calendars(definitions: Mapping[str, Any]) -> dict[str, Calendar]:
    """Read calendars as stored."""
    return {name: read_calendar(definition) for name, definition in definitions.items()}


def _given(shape: Mapping[str, Any]) -> set[str]:
    return {key for key, value in shape.items() if value is not None}


def _json(shape: Mapping[str, Any]) -> str:
    return msgspec.json.encode(shape).decode()
