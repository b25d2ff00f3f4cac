"""When a job fires, in words: a sentence, and the next moments in UTC and in the zone that its reader thinks in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from duly.cli.render.output import duration
from duly.wire.jobs.jobs import Fire


def lines_of(found: Sequence[Fire], zone: str) -> list[str]:
    """Write fires on a line each: in the schedule's zone, where it has one, and in UTC."""
    return [_line(number, fire, zone) for number, fire in enumerate(found)]


def _jitter_note(fire: Fire) -> str | None:
    """Say when it starts, where jitter puts it off."""
    due = fire.due_at
    if due is None or fire.note == "estimate":
        return None
    late = datetime.fromisoformat(due) - datetime.fromisoformat(fire.scheduled_at)
    return f"starts {duration(late)} later, by its jitter" if late > timedelta() else None


def _line(number: int, fire: Fire, zone: str) -> str:
    moment = datetime.fromisoformat(fire.scheduled_at)
    word = "next" if number == 0 else "then"
    notes = [fire.note, _jitter_note(fire)]
    note = "".join(f"   ({note})" for note in notes if note)
    if zone == "UTC":
        return f"{word:6}{both_clocks(moment)}{note}"
    local = f"{fire.local.replace('T', ' ')} {zone}"
    return f"{word:6}{moment:%Y-%m-%d %H:%M:%S} UTC   {local} ({fire.offset}){note}"


def both_clocks(moment: datetime) -> str:
    """Write a moment in UTC and in local time."""
    utc, local = moment.astimezone(UTC), moment.astimezone()
    # The local day is repeated only where it differs.
    day = "" if local.date() == utc.date() else f"{local:%Y-%m-%d} "
    return f"{utc:%Y-%m-%d %H:%M:%S} UTC   {day}{local:%H:%M:%S} {local.tzname()} here"
