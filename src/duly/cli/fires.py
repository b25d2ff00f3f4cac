"""When a job fires, in words: a sentence, and the next moments in UTC and in the zone that its reader thinks in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from duly.cli.output import duration
from duly.domain.triggers.schedule.preview import fires, fires_left
from duly.domain.triggers.schedule.schedules import Schedule
from duly.domain.triggers.schedule.summary import brief

FIRES_SHOWN = 3
_FINEST = timedelta(microseconds=1)


def next_fires(schedule: Schedule, job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give the next fires of a job as the API tells them."""
    pending = job["next_run_at"]
    if pending is None:
        return []
    found = fires(schedule, pending - _FINEST, fires_left(job, FIRES_SHOWN), str(job["job_id"]))
    if schedule.trigger.is_estimate:
        found = found[:1] and [{**found[0], "scheduled_at": pending.isoformat()}]
    return found


def lines_of(found: Sequence[Mapping[str, Any]], zone: str) -> list[str]:
    """Write fires on a line each: in the schedule's zone, where it has one, and in UTC."""
    return [_line(number, fire, zone) for number, fire in enumerate(found)]


def schedule_notes(schedule: Schedule, job: Mapping[str, Any]) -> list[str]:
    """Say what the words of a schedule became, and what of it may not be meant."""
    saved = [f"saved as {brief(schedule.trigger.canonical)}"] if _was_asked_in_words(job) else []
    return [*saved, *(f"note  {warning.message}" for warning in schedule.warnings_after(job["read_at"]))]


def _was_asked_in_words(job: Mapping[str, Any]) -> bool:
    shape = {} if job["schedule"] is None else msgspec.json.decode(job["schedule"])
    return bool(shape.get("asked", {}).get("type") == "text")


def _jitter_note(fire: Mapping[str, Any]) -> str | None:
    """Say when it starts, where jitter puts it off."""
    due = fire["due_at"]
    if due is None or fire["note"] == "estimate":
        return None
    late = datetime.fromisoformat(due) - datetime.fromisoformat(fire["scheduled_at"])
    return f"starts {duration(late)} later, by its jitter" if late > timedelta() else None


def _line(number: int, fire: Mapping[str, Any], zone: str) -> str:
    moment = datetime.fromisoformat(fire["scheduled_at"])
    word = "next" if number == 0 else "then"
    notes = [fire["note"], _jitter_note(fire)]
    note = "".join(f"   ({note})" for note in notes if note)
    if zone == "UTC":
        return f"{word:6}{both_clocks(moment)}{note}"
    local = f"{fire['local'].replace('T', ' ')} {zone}"
    return f"{word:6}{moment:%Y-%m-%d %H:%M:%S} UTC   {local} ({fire['offset']}){note}"


def both_clocks(moment: datetime) -> str:
    """Write a moment in UTC and in local time."""
    utc, local = moment.astimezone(UTC), moment.astimezone()
    # The local day is repeated only where it differs.
    day = "" if local.date() == utc.date() else f"{local:%Y-%m-%d} "
    return f"{utc:%Y-%m-%d %H:%M:%S} UTC   {day}{local:%H:%M:%S} {local.tzname()} here"
