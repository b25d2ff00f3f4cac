"""A job for people: what runs, when it fires, and what else its schedule says."""

from __future__ import annotations

from typing import Any

import msgspec

from duly.cli.render.fires import lines_of
from duly.cli.render.policies import policy_line
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.jobs.spec_of import shown_target
from duly.domain.targets.target import RESERVED
from duly.domain.targets.words import described
from duly.domain.triggers.schedule.options import check
from duly.domain.triggers.schedule.schedules import Schedule
from duly.wire.jobs.definitions import JobTarget
from duly.wire.jobs.jobs import Job, JobSummary
from duly.wire.runs import TargetSummary

FIRES_SHOWN = 3
_SAVED = "saved"


def is_one_shot(job: Job) -> bool:
    """Say whether a job is its own only run."""
    return job.last_run is not None and job.last_run.run_id == job.job_id


def job_row(job: Job | JobSummary) -> dict[str, Any]:
    """Give a job for programs: as the API tells it, and the handler that a worker must have for it."""
    target = job.target
    handler = target.handler if isinstance(target, TargetSummary) else handler_in(target)
    return {**msgspec.structs.asdict(job), "state": job.status, "handler": handler}


def handler_in(target: JobTarget) -> str:
    """Name what a worker must offer, as far as it can be told from a target of any type."""
    name = target.image if target.argv is None else target.argv[0]
    return target.handler or f"{RESERVED}{target.type}{'' if name is None else f':{name}'}"


def fire_lines(job: Job) -> list[str]:
    """Write the next fires of a job on a line each."""
    schedule = _schedule(job)
    return [] if schedule is None else lines_of(job.next_fires[:FIRES_SHOWN], schedule.trigger.zone.name)


def policies(job: Job) -> str:
    """Say what a schedule says beside its trigger; of what waits for events nothing."""
    schedule = _schedule(job)
    return "" if schedule is None else policy_line(schedule, job.runs_left)


def job_lines(job: Job) -> list[str]:
    """Say when a job fires: a sentence with what runs, what its words became, the next fires, and what may not be meant."""
    what = f"{job.description}: {what_runs(job)} on queue {job.queue}"
    saved = [note for note in job.notes if note.startswith(_SAVED)]
    notes = [f"note  {note}" for note in job.notes if not note.startswith(_SAVED)]
    return [what, *saved, *fire_lines(job), *notes]


def what_runs(job: Job) -> str:
    """Say what a job runs."""
    return described(msgspec.to_builtins(job.target))


def what_submitted_runs(job: Submission | Recurring) -> str:
    """Say what a job runs that is to be submitted."""
    return described(shown_target(job.handler, job.options))


def _schedule(job: Job) -> Schedule | None:
    return None if job.schedule is None else check(job.schedule)
