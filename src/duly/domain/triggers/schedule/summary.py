"""Summary of a schedule: a sentence, and its next moments."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from duly.domain.runs.run_id import occurrence_id
from duly.domain.triggers.at import At
from duly.domain.triggers.elapsed import FixedRate
from duly.domain.triggers.interval import describe_every
from duly.domain.triggers.schedule.schedules import Fire, Schedule


def is_once(schedule: Schedule) -> bool:
    """Return whether a schedule has one occurrence and no rule for more."""
    return isinstance(schedule.trigger, At)


def only_run_id(schedule: Schedule, job_id: UUID, pending_at: datetime | None) -> UUID | None:
    """Return the id of the only run of a job that fires once; None where it may fire more often.

    `pending_at` is the moment it waits for; None: it has fired.
    """
    if not isinstance(schedule.trigger, At):
        return None
    return occurrence_id(job_id, pending_at or schedule.trigger.moment, "schedule")


def is_period(schedule: Schedule) -> bool:
    """Return whether a schedule is an endless period, counted from a moment."""
    trigger = schedule.trigger
    return isinstance(trigger, FixedRate) and not trigger.is_estimate and trigger.count is None


def sentence(schedule: Schedule) -> str:
    """Describe when a schedule fires; the anchor of a period shows in its next fires."""
    trigger = schedule.trigger
    if isinstance(trigger, FixedRate) and is_period(schedule):
        return describe_every(timedelta(seconds=trigger.every))
    return trigger.describe()


def brief(canonical: Mapping[str, Any]) -> str:
    """Write a canonical trigger as it could be typed."""
    parts = [str(value) for key, value in canonical.items() if key not in ("tz", "type")]
    return f"{canonical['type']} {' from '.join(parts)}"


def due_moments(schedule: Schedule, first: datetime, n: int, job_id: str) -> list[datetime]:
    """Return when a schedule's occurrences start, from the one at `first` on, as far as they are known: at most `n`."""
    most = min(n, schedule.max_runs or n)
    found: list[datetime] = []
    fire: Fire | None = Fire(first)
    while fire is not None and len(found) < most:
        found.append(schedule.due_at(fire, job_id))
        has_more = not (is_once(schedule) or schedule.trigger.is_estimate)
        fire = schedule.next_after(fire.scheduled_at) if has_more else None
    return found
