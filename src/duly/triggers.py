"""Triggers for users: compile one, ask it for its occurrences, or preview a whole schedule.

>>> compile({"type": "cron", "expr": "30 2 * * 1-5", "tz": "Europe/London"}).describe()
'At 02:30, Monday to Friday, Europe/London time'
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from duly.clock import host_now
from duly.domain.triggers.calendars import Calendar, read_calendar
from duly.domain.triggers.compiled import Compiled, TriggerWarning
from duly.domain.triggers.compiling import compile_trigger
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.schedule.preview import preview_schedule
from duly.domain.triggers.schedule.reading import compile_schedule
from duly.domain.triggers.schedule.schedules import Schedule
from duly.domain.triggers.zones.zones import database_version

__all__ = [
    "Calendar",
    "Compiled",
    "Schedule",
    "TriggerError",
    "TriggerWarning",
    "compile",
    "compile_schedule",
    "database_version",
    "preview",
    "read_calendar",
]


def compile(trigger: Mapping[str, Any], *, job_id: str | None = None, now: datetime | None = None) -> Compiled:  # noqa: A001
    """Compile a trigger; `now` is the moment of creation, for relative times. Raises TriggerError."""
    return compile_trigger(trigger, job_id=job_id, now=now or host_now())


def preview(
    schedule: Mapping[str, Any],
    after: datetime | None = None,
    n: int = 10,
    job_id: str | None = None,
    *,
    calendars: Mapping[str, Calendar] | None = None,
) -> dict[str, Any]:
    """Describe a schedule and its next fires; problems are in the result, not raised."""
    return preview_schedule(schedule, after or host_now(), n, job_id, calendars or {})
