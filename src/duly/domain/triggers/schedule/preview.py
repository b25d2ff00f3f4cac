"""Preview of a schedule: a description and its next fires, computed by the code that the scheduler runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from duly.domain.triggers.calendars import Calendar
from duly.domain.triggers.errors import TriggerError, shown
from duly.domain.triggers.moments import fraction_text, local_text, offset_text, second_of, utc_text
from duly.domain.triggers.schedule.reading import compile_schedule
from duly.domain.triggers.schedule.schedules import Fire, Schedule
from duly.domain.triggers.zones import zones

FIRES_MAX = 1000
_FINEST = timedelta(microseconds=1)


def fires_left(job: Mapping[str, Any], most: int) -> int:
    """Return how many coming fires of a stored job to show: `max_runs` bounds those that are armed, not the staged one."""
    left: int | None = job["runs_left"]
    next_at: datetime | None = job["next_run_at"]
    if left is None or next_at is None:
        return most
    is_staged: bool = left == 0 or next_at < job["pending_at"]
    return min(most, left + is_staged)


def preview_schedule(
    schedule: Mapping[str, Any],
    after: datetime,
    n: int,
    job_id: str | None,
    known_calendars: Mapping[str, Calendar],
    least_period: int | None = None,
) -> dict[str, Any]:
    """Preview a schedule as seen from `after`; problems are listed under `errors`."""
    try:
        _check_count(n)
        compiled = compile_schedule(
            schedule, job_id=job_id, now=after, known_calendars=known_calendars, least_period=least_period
        )
    except TriggerError as error:
        return _answer(errors=[single.as_json() for single in error.errors])
    return _answer(
        valid=True,
        canonical=compiled.trigger.canonical,
        description=compiled.trigger.describe(),
        words=compiled.trigger.words,
        kind=compiled.trigger.kind,
        next=_fires(compiled, compiled.first_from(after + _FINEST), min(n, compiled.max_runs or n), job_id),
        warnings=[msgspec.to_builtins(warning) for warning in compiled.warnings_after(after)],
    )


def _answer(**found: Any) -> dict[str, Any]:
    return {
        "valid": False,
        "canonical": None,
        "description": None,
        "words": None,
        "kind": None,
        "tzdb": zones.database_version(),
        "next": [],
        "errors": [],
        "warnings": [],
    } | found


def _check_count(n: object) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= FIRES_MAX:
        raise TriggerError("LIMIT", f"n {shown(n)} is not a number from 1 to {FIRES_MAX}", "n")


def fires(schedule: Schedule, after: datetime, n: int, job_id: str | None) -> list[dict[str, Any]]:
    """Return the next fires with their details."""
    return _fires(schedule, schedule.next_after(after), n, job_id)


def _fires(schedule: Schedule, fire: Fire | None, n: int, job_id: str | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while fire is not None and len(found) < n:
        found.append(_shape(schedule, fire, job_id, is_first=not found))
        fire = schedule.next_after(fire.scheduled_at)
    return found


def _shape(schedule: Schedule, fire: Fire, job_id: str | None, *, is_first: bool) -> dict[str, Any]:
    zone, second = schedule.trigger.zone, second_of(fire.scheduled_at)
    fraction = fraction_text(fire.scheduled_at.microsecond)
    local = zone.local_at(second)
    return {
        "scheduled_at": utc_text(second)[:-1] + fraction + "Z",
        "local": local_text(local) + fraction,
        "offset": offset_text(local - second),
        "due_at": _due(schedule, fire, job_id),
        "note": _note(schedule, fire, second, is_first=is_first),
    }


def _due(schedule: Schedule, fire: Fire, job_id: str | None) -> str | None:
    """Return the due moment; with jitter it is unknown without a job."""
    if schedule.jitter is not None and job_id is None:
        return None
    due = schedule.due_at(fire, job_id or "")
    return utc_text(second_of(due))[:-1] + fraction_text(due.microsecond) + "Z"


def _note(schedule: Schedule, fire: Fire, second: int, *, is_first: bool) -> str | None:
    notes = [
        None if fire.deferred_by is None else f"deferred by {fire.deferred_by}",
        None if fire.deferred_by is not None else schedule.trigger.note(second),
        "estimate" if schedule.trigger.is_estimate and not is_first else None,
    ]
    return "; ".join(note for note in notes if note) or None
