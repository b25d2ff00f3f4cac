"""Jobs between a request and the store: what a request adds to a spec, what is allowed here, and what a response shows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, overload

from duly.domain.errors import InvalidOption
from duly.domain.jobs.compile import compile_one_shot, compile_recurring, compile_spec
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.jobs.spec import JobSpec
from duly.domain.jobs.spec_of import run_rules_of, shown_target
from duly.domain.runs import payload as payloads
from duly.domain.runs.dependencies import check_after
from duly.domain.runs.options import RunOptions
from duly.domain.targets.spec import told_in_short
from duly.domain.targets.target import Allowed
from duly.domain.triggers.schedule.preview import fires
from duly.domain.triggers.schedule.schedules import Schedule
from duly.wire.jobs.definitions import JobTarget, RunDefinition
from duly.wire.jobs.jobs import Fire, NewJob
from duly.wire.runs import FollowedJob, TargetSummary

NEXT_FIRES = 3


def compiled(body: JobSpec, now: datetime, extra: Mapping[str, Any], allowed: Allowed) -> Submission | Recurring:
    """Give the job that the body of a request asks for, if it is allowed here. Raises Refused."""
    return admitted(compile_spec(body, now, carried={**_carried(body), **extra}), allowed)


def one_shot(body: JobSpec, extra: Mapping[str, Any], allowed: Allowed) -> Submission:
    """Give the one-shot without a name that the body of a request asks for, if it is allowed here. Raises Refused."""
    return admitted(compile_one_shot(body, {**_carried(body), **extra}), allowed)


def recurring(body: JobSpec, now: datetime, extra: Mapping[str, Any], allowed: Allowed) -> Recurring:
    """Give the job with a stored definition that the body of a request asks for, if it is allowed here. Raises Refused."""
    return admitted(compile_recurring(body, now, {**_carried(body), **extra}), allowed)


def not_plain() -> InvalidOption:
    """Say that a one-shot without a name cannot become another kind of job."""
    return InvalidOption("a one-shot takes no name, on_event or other schedule than a moment; create a job with them")


@overload
def admitted(job: Recurring, allowed: Allowed) -> Recurring: ...
@overload
def admitted(job: Submission, allowed: Allowed) -> Submission: ...
@overload
def admitted(job: Submission | Recurring, allowed: Allowed) -> Submission | Recurring: ...
def admitted(job: Recurring | Submission, allowed: Allowed) -> Recurring | Submission:
    """Check that what a job does is allowed here. Raises InvalidOption."""
    allowed.check_told(job.options.metadata.then)
    allowed.check(job.options.policy.target)
    return job


def _carried(body: JobSpec) -> dict[str, Any]:
    """Give the options of runs that only the request that creates a job names. Raises InvalidOption."""
    if not isinstance(body, NewJob):
        return {}
    found: dict[str, Any] = {} if body.parent is None else {"parent": body.parent}
    if body.after:
        pairs = ((one.job, one.on) if isinstance(one, FollowedJob) else (one, "success") for one in body.after)
        found["after"] = check_after(pairs)
    return found


def payload_text(payload: Mapping[str, Any], handler: str) -> str:
    """Write a payload for the store. Raises InvalidPayload."""
    return payloads.encode(payload, f"the payload of {handler}")


def coming_fires(schedule: Schedule, after: datetime, n: int, job_id: str) -> list[Fire]:
    """Show the next fires of a schedule from a moment on."""
    return [Fire(**shape) for shape in fires(schedule, after, n, job_id)]


def target_shape(handler: str, options: RunOptions) -> JobTarget:
    """Show what a job runs, its secrets masked; of a target that this version cannot read, no more than its type."""
    return JobTarget(**shown_target(handler, options))


def target_summary(handler: str, options: RunOptions) -> TargetSummary:
    """Show what runs, in short."""
    return TargetSummary(**told_in_short(handler, options))


def run_definition(handler: str, options: RunOptions, version: int) -> RunDefinition:
    """Show the definition that a run uses or used, its secrets masked."""
    return RunDefinition(version=version, target=target_shape(handler, options), **run_rules_of(options))
