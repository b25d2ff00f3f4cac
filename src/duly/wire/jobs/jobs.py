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
from duly.wire.runs import FollowedJob, Run, TargetSummary
from duly.wire.schema.shapes import IdempotencyKey, Told

AFTER_MAX = 100

# A merge patch (RFC 7396) of a definition; what comes of it is read as a definition.
JobPatch = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/JobPatch"})]


class NewJob(JobSpec, frozen=True, kw_only=True):
    """A job to be created. `idempotency_key` means the same as the header."""

    idempotency_key: IdempotencyKey | None = None
    parent: (
        Annotated[UUID, Meta(description="The run whose subtask this is. It waits or runs; this is a one-shot.")] | None
    ) = None
    after: Annotated[
        list[UUID | FollowedJob],
        Meta(
            max_length=AFTER_MAX,
            description="One-shots that must have ended before this one-shot runs; an id alone: that must have succeeded.",
        ),
    ] = msgspec.field(default_factory=list)


class Fire(Told, frozen=True):
    """A coming fire: its moment, the same on the wall clock of the schedule's zone, and when it is due, jitter included."""

    scheduled_at: str
    local: str
    offset: str
    due_at: str | None
    note: str | None


class LastRun(Told, frozen=True):
    """The newest run of a job that has begun or ended."""

    run_id: UUID
    state: str
    attempts: int


class Job(JobRules, Told, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A job as it stands. A one-shot is its own only run: its `job_id` is its `run_id`."""

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
    after: list[FollowedJob] = msgspec.field(default_factory=list)
    run_id: Annotated[UUID | None, Meta(description="Of a one-shot, its run; null where a job may fire again.")] = None
    paused_at: Moment | None = None
    removed_at: Annotated[Moment | None, Meta(description="Since when no program declares it any more.")] = None
    runs_left: Annotated[int | None, Meta(description="Of `max_runs`, how many are left; null: no limit.")] = None
    notes: Annotated[
        list[str], Meta(description="What the words of its schedule became, and what of it may not be meant.")
    ] = msgspec.field(default_factory=list)


# The fields of a job that only the server writes, in its place in the body of a PUT: what was read can be put back as it is.
_READ_ONLY = Annotated[Any, Meta(description="Told by the server; ignored here.", extra_json_schema={"readOnly": True})]
_PutJob = msgspec.defstruct(
    "PutJob",
    [(name, _READ_ONLY, None) for name in Job.__struct_fields__ if name not in JobSpec.__struct_fields__],
    bases=(JobSpec,),
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    module=__name__,
    namespace={"__doc__": "A definition, or a job as it was read: fields that only the server writes are ignored."},
)
PutJob = cast("type[JobSpec]", _PutJob)


class JobSummary(Told, frozen=True):
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
    created_at: Annotated[Moment | None, Meta(description="Of a one-shot without a name it is not known.")]
    run_id: Annotated[UUID | None, Meta(description="Of a one-shot without a name, its run.")] = None
    description: Annotated[str, Meta(description="When it fires, in words.")] = ""
    removed_at: Annotated[Moment | None, Meta(description="Since when no program declares it any more.")] = None


class JobList(Page[JobSummary], frozen=True):
    """A page of jobs, the newest first unless asked otherwise."""


class CreatedJob(Told, frozen=True):
    """A job that was accepted: it is durable. `run_id` is the run of a one-shot.

    `run` is there when its end was waited for, and came.
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
