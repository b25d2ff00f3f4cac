"""A job for people: its target, its fires in UTC and in the reader's zone, and its schedule's options."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from duly.cli.render.output import duration, moment
from duly.domain.counting import some
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.jobs.spec_of import shown_target
from duly.domain.targets.target import RESERVED
from duly.domain.targets.words import described
from duly.domain.triggers.elapsed import FixedDelay
from duly.domain.triggers.schedule.options import check
from duly.domain.triggers.schedule.schedules import Schedule
from duly.wire.jobs.definitions import JobTarget
from duly.wire.jobs.jobs import Fire, Job, JobSummary
from duly.wire.runs import TargetSummary

FIRES_SHOWN = 3
_SAVED = "saved"


def is_one_shot(job: Job) -> bool:
    """Return whether a job is its own only run."""
    return job.last_run is not None and job.last_run.run_id == job.job_id


def job_row(job: Job | JobSummary) -> dict[str, Any]:
    """Return a job for programs: as the API shows it, with the handler that a worker must have."""
    target = job.target
    handler = target.handler if isinstance(target, TargetSummary) else handler_in(target)
    return {**msgspec.structs.asdict(job), "state": job.status, "handler": handler}


def handler_in(target: JobTarget) -> str:
    """Return the handler that a worker must have, as far as a target shows it."""
    name = target.image if target.argv is None else target.argv[0]
    return target.handler or f"{RESERVED}{target.type}{'' if name is None else f':{name}'}"


def fire_lines(job: Job) -> list[str]:
    """Write the next fires of a job on a line each: in the schedule's zone, where it has one, and in UTC."""
    if (schedule := _schedule(job)) is None:
        return []
    zone = schedule.trigger.zone.name
    return [_line(number, fire, zone) for number, fire in enumerate(job.next_fires[:FIRES_SHOWN])]


def policies(job: Job) -> str:
    """Describe the options of a schedule beside its trigger; none for events."""
    schedule = _schedule(job)
    return "" if schedule is None else policy_line(schedule, job.runs_left)


def job_lines(job: Job) -> list[str]:
    """Describe when a job fires: a sentence with its target, the parsed words, the next fires, and warnings."""
    sentence = f"{job.description}: {target_text(job)} on queue {job.queue}"
    saved = [note for note in job.notes if note.startswith(_SAVED)]
    notes = [f"note  {note}" for note in job.notes if not note.startswith(_SAVED)]
    return [sentence, *saved, *fire_lines(job), *notes]


def target_text(job: Job) -> str:
    """Describe the target of a job."""
    return described(msgspec.to_builtins(job.target))


def submitted_target_text(job: Submission | Recurring) -> str:
    """Describe the target of a job to be submitted."""
    return described(shown_target(job.handler, job.options))


def _schedule(job: Job) -> Schedule | None:
    return None if job.schedule is None else check(job.schedule)


def _jitter_remark(fire: Fire) -> str | None:
    """Return when it starts, where jitter puts it off."""
    due = fire.due_at
    if due is None or fire.note == "estimate":
        return None
    jitter = datetime.fromisoformat(due) - datetime.fromisoformat(fire.scheduled_at)
    return f"starts {duration(jitter)} later, by its jitter" if jitter > timedelta() else None


def _line(number: int, fire: Fire, zone: str) -> str:
    fires_at = datetime.fromisoformat(fire.scheduled_at)
    word = "next" if number == 0 else "then"
    notes = [fire.note, _jitter_remark(fire)]
    note = "".join(f"   ({note})" for note in notes if note)
    if zone == "UTC":
        return f"{word:6}{both_clocks(fires_at)}{note}"
    local = f"{fire.local.replace('T', ' ')} {zone}"
    return f"{word:6}{fires_at:%Y-%m-%d %H:%M:%S} UTC   {local} ({fire.offset}){note}"


def both_clocks(at: datetime) -> str:
    """Write a moment in UTC and in local time."""
    utc, local = at.astimezone(UTC), at.astimezone()
    # The local day is repeated only where it differs.
    day = "" if local.date() == utc.date() else f"{local:%Y-%m-%d} "
    return f"{utc:%Y-%m-%d %H:%M:%S} UTC   {day}{local:%H:%M:%S} {local.tzname()} here"


def policy_line(schedule: Schedule, runs_left: int | None) -> str:
    """Describe the policies for overlap and misfires, and other chosen options."""
    misfire = f"misfire {schedule.misfire.policy}"
    judged = [] if isinstance(schedule.trigger, FixedDelay) else [_overlap(schedule), misfire]
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
