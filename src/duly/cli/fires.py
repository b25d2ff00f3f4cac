"""When a job fires, in words: a sentence, and the next moments in UTC and in the zone that its reader thinks in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from duly.domain.triggers.preview import fires
from duly.domain.triggers.schedules import Schedule

FIRES_SHOWN = 3
_FINEST = timedelta(microseconds=1)


def fire_lines(schedule: Schedule, job: Mapping[str, Any]) -> list[str]:
    """Write the next fires on a line each: in the schedule's zone, where it has one, and in UTC."""
    pending = job["next_run_at"]
    if pending is None:
        return []
    shown = min(FIRES_SHOWN, job["runs_left"] or FIRES_SHOWN)
    found = fires(schedule, pending - _FINEST, shown, str(job["job_id"]))
    if schedule.trigger.is_estimate:
        found = found[:1] and [{**found[0], "scheduled_at": pending.isoformat()}]
    return [_line(number, fire, schedule) for number, fire in enumerate(found)]


def _line(number: int, fire: Mapping[str, Any], schedule: Schedule) -> str:
    moment = datetime.fromisoformat(fire["scheduled_at"])
    word = "next" if number == 0 else "then"
    note = f"   ({fire['note']})" if fire["note"] else ""
    if schedule.trigger.zone.name == "UTC":
        return f"{word:6}{both_clocks(moment)}{note}"
    local = f"{fire['local'].replace('T', ' ')} {schedule.trigger.zone.name}"
    return f"{word:6}{moment:%Y-%m-%d %H:%M:%S} UTC   {local} ({fire['offset']}){note}"


def both_clocks(moment: datetime) -> str:
    """Write a moment in UTC and in local time."""
    utc, local = moment.astimezone(UTC), moment.astimezone()
    # The local day is repeated only where it differs.
    day = "" if local.date() == utc.date() else f"{local:%Y-%m-%d} "
    return f"{utc:%Y-%m-%d %H:%M:%S} UTC   {day}{local:%H:%M:%S} {local.tzname()} here"
