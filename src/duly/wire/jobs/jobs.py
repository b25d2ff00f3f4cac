"""Jobs as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Any, cast
from uuid import UUID

import msgspec
from msgspec import Meta

from duly.domain.fields import Moment, Payload
from duly.domain.jobs.spec import EventMatch, JobRules, JobSpec, ScheduleFields
from duly.wire.jobs.definitions import JobTarget
from duly.wire.jobs.verbs import JobState
from duly.wire.pages import Page
from duly.wire.runs import Dependency, Run, TargetSummary
from duly.wire.schema.shapes import IdempotencyKey, ResponseModel

DEPENDENCIES_MAX = 100

# A merge patch (RFC 7396) of a definition; the result is read as a definition.
JobPatch = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/JobPatch"})]


class NewJob(JobSpec, frozen=True, kw_only=True):
    """A job to be created. `idempotency_key` means the same as the header."""

    idempotency_key: IdempotencyKey | None = None
    parent: Annotated[UUID, Meta(description="Run whose subtask this one-shot is. It must not have ended.")] | None = (
        None
    )
    depends_on: Annotated[
        list[UUID | Dependency],
        Meta(
            max_length=DEPENDENCIES_MAX,
            description="One-shots that this one-shot depends on; a plain id: that one must succeed.",
        ),
    ] = msgspec.field(default_factory=list)


class Fire(ResponseModel, frozen=True):
    """A coming fire: its moment, the same in the local time of the schedule's zone, and when it is due, including jitter."""

    scheduled_at: str
    local: str
    offset: str
    due_at: str | None
    note: str | None


class LastRun(ResponseModel, frozen=True):
    """The newest run of a job that has started or ended."""

    run_id: UUID
    state: str
    attempts: int


class Job(JobRules, ResponseModel, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A job. A one-shot is its own only run: its `job_id` is its `run_id`."""

    job_id: UUID
    status: JobState
    target: JobTarget
    payload: Payload | None
    description: str
    next_run_at: Moment | None
    next_fires: list[Fire]
    version: int
    owner: str
    source: str | None
    pause_reason: str | None
    last_run: LastRun | None
    created_at: Moment | None
    depends_on: list[Dependency] = msgspec.field(default_factory=list)
    run_id: Annotated[UUID | None, Meta(description="Run of a one-shot; null: the job may fire again.")] = None
    paused_at: Moment | None = None
    removed_at: Annotated[Moment | None, Meta(description="Time since which no program declares it.")] = None
    runs_left: Annotated[int | None, Meta(description="Runs left of `max_runs`; null: no limit.")] = None
    notes: Annotated[list[str], Meta(description="Interpretation of a schedule in English, and warnings.")] = (
        msgspec.field(default_factory=list)
    )


# The fields of a job that only the server writes, in its place in the body of a PUT: what was read can be put back as it is.
_READ_ONLY = Annotated[Any, Meta(description="Read-only; ignored in requests.", extra_json_schema={"readOnly": True})]
_PutJob = msgspec.defstruct(
    "PutJob",
    [(name, _READ_ONLY, None) for name in Job.__struct_fields__ if name not in JobSpec.__struct_fields__],
    bases=(JobSpec,),
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    module=__name__,
    namespace={"__doc__": "A definition, or a job as it was read: read-only fields are ignored."},
)
PutJob = cast("type[JobSpec]", _PutJob)


class JobSummary(ResponseModel, frozen=True):
    """A job in a list."""

    job_id: UUID
    name: str | None
    status: JobState
    target: TargetSummary
    queue: str
    priority: int
    schedule: ScheduleFields | None
    on_event: EventMatch | None
    next_run_at: Moment | None
    tags: list[str]
    version: int
    owner: str
    source: str | None
    pause_reason: str | None
    created_at: Annotated[Moment | None, Meta(description="Null for one-shots without a name.")]
    run_id: Annotated[UUID | None, Meta(description="Run of a one-shot without a name.")] = None
    description: Annotated[str, Meta(description="The schedule in words.")] = ""
    removed_at: Annotated[Moment | None, Meta(description="Time since which no program declares it.")] = None


class JobList(Page[JobSummary], frozen=True):
    """A page of jobs, the newest first unless sorted otherwise."""


class CreatedJob(ResponseModel, frozen=True):
    """An accepted job: it is durable. `run_id` is the run of a one-shot.

    `run` is present when its end was waited for, and came.
    """

    job_id: UUID
    run_id: UUID | None
    name: str | None
    status: JobState
    next_run_at: Moment | None
    next_fires: list[Fire]
    description: str
    version: int
    run: Run | None = None
