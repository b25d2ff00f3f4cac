"""Shapes of the API as the rows that commands print, and what was typed as the fields of the API."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast
from uuid import UUID

import msgspec

from duly.client.definitions import JobFields
from duly.domain.fields import non_defaults
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.jobs.spec import Target
from duly.domain.jobs.spec_of import spec_of
from duly.domain.limits.overload import overload_told
from duly.domain.targets.target import RESERVED
from duly.domain.triggers.on_event import OnEvent
from duly.domain.triggers.schedule.options import check
from duly.domain.triggers.schedule.summary import sentence
from duly.wire.jobs.definitions import JobTarget
from duly.wire.jobs.jobs import Job, JobSummary
from duly.wire.queues import Queue
from duly.wire.runs import Attempt, FollowedJob, Run


def text(value: object) -> str | None:
    """Write JSON as the text that rows carry."""
    return None if value is None else msgspec.json.encode(value).decode()


def run(found: Run) -> dict[str, Any]:
    """Give a run as a row."""
    row = msgspec.structs.asdict(found)
    return {
        **row,
        "payload": text(found.payload),
        "result": text(found.result),
        "progress": None if found.progress is None else msgspec.structs.asdict(found.progress),
        "checkpoint": None if found.checkpoint is None else msgspec.structs.asdict(found.checkpoint),
        "target": None if found.target is None else msgspec.structs.asdict(found.target),
        "attempts": [_attempt(attempt) for attempt in found.attempts],
        "after": [(str(one.job), one.on) for one in found.after],
        "definition": msgspec.to_builtins(found.definition, builtin_types=(datetime,)),
        "submitted_by": msgspec.to_builtins(found.submitted_by, builtin_types=(datetime,)),
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    row = msgspec.structs.asdict(attempt)
    return {**row, "result": text(attempt.result), "detail": text(attempt.detail), "became": None, "due_at": None}


def job(found: Job) -> dict[str, Any]:
    """Give a job as a row."""
    row = msgspec.to_builtins(found, builtin_types=(datetime,))
    known = {"state": found.status, "handler": handler_in(found.target), "payload": text(found.payload)}
    unknown = {"options": None, "removed_at": None, "paused_at": None, "runs_left": len(found.next_fires)}
    return {**row, **known, **unknown, "schedule": text(found.schedule)}


def handler_in(target: JobTarget) -> str:
    """Name what a worker must offer, as far as it can be told from a target of any type."""
    name = target.image if target.argv is None else target.argv[0]
    return target.handler or f"{RESERVED}{target.type}{'' if name is None else f':{name}'}"


def job_in_list(found: JobSummary) -> dict[str, Any]:
    """Give a job of a list as a row, with its schedule in words."""
    row = msgspec.to_builtins(found, builtin_types=(datetime,))
    words = _words(found)
    known = {"state": found.status, "handler": found.target.handler, "schedule": text(found.schedule)}
    return {**row, **known, "description": words, "removed_at": None}


def _words(found: JobSummary) -> str:
    if found.on_event is not None:
        return OnEvent(found.on_event.type, found.on_event.source).describe()
    return sentence(check({**(found.schedule or {}), "calendars": None}))


def is_one_shot(found: Job) -> bool:
    """Say whether a job is its own only run."""
    return found.last_run is not None and found.last_run.run_id == found.job_id


def queue(found: Queue) -> dict[str, Any]:
    """Give a queue as a row."""
    row = msgspec.structs.asdict(found)
    attention = [overload_told(found.oldest_age_seconds, found.age_limit_seconds)] if found.is_overloaded else []
    attention += [] if found.workers else [f"nobody serves it: duly worker module:app --queue {found.name}"]
    return {
        **row,
        "queue": row.pop("name"),
        "state": "paused" if found.is_held else "overloaded" if found.is_overloaded else "open",
        "attention": "; ".join(attention),
    }


def target_of_job(job: Submission | Recurring) -> Target:
    """Give the target with which a job is created."""
    return spec_of(job, is_shown=False).target


def fields_of(job: Submission | Recurring) -> JobFields:
    """Give the fields with which a job is created."""
    fields = non_defaults(spec_of(job, is_shown=False))
    return cast(JobFields, {name: value for name, value in fields.items() if name != "target"})


def after_of(job: Submission | Recurring) -> list[FollowedJob] | None:
    """Give what a job follows; None when nothing."""
    followed = job.options.metadata.after
    return [FollowedJob(job=UUID(one), on=cast(Any, on)) for one, on in followed] or None
