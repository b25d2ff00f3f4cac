"""What a schedule says beside its trigger, in a line: bounds, jitter, calendars, and what happens when it cannot fire."""

from __future__ import annotations

from duly.cli.render.output import moment
from duly.domain.counting import some
from duly.domain.triggers.elapsed import FixedDelay
from duly.domain.triggers.schedule.schedules import Schedule


def policy_line(schedule: Schedule, runs_left: int | None) -> str:
    """Say what becomes of a fire that overlaps or is late, and whatever else was chosen."""
    late = f"misfire {schedule.misfire.policy}"
    judged = [] if isinstance(schedule.trigger, FixedDelay) else [_overlap(schedule), late]
    return ", ".join([*judged, *_chosen(schedule, runs_left)])


def _overlap(schedule: Schedule) -> str:
    overlap = schedule.overlap
    return f"overlap {overlap.policy}" + ("" if overlap.limit is None else f" up to {overlap.limit}")


def _chosen(schedule: Schedule, runs_left: int | None) -> list[str]:
    jitter, most = schedule.jitter, schedule.max_runs
    chosen = [
        schedule.start and f"from {moment(schedule.start)}",
        schedule.end and f"until {moment(schedule.end)}",
        most and f"{some(most, 'run')} in all, {runs_left or 0} left",
        jitter and f"jitter up to {jitter.max_seconds} s per {jitter.per}",
        *(f"{use.mode}s {use.calendar.name} ({use.on_hit})" for use in schedule.uses),
        schedule.pause_on_failure and f"pauses after {some(schedule.pause_on_failure, 'failure')}",
    ]
    return [words for words in chosen if words]
