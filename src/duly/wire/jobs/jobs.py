"""Jobs as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast
from uuid import UUID

import msgspec
from msgspec import Meta

from duly.domain.targets.shapes import CommandTarget, ContainerTarget, WebhookTarget
from duly.wire.callbacks import Callback, ToldCallback
from duly.wire.events import EventMatch
from duly.wire.jobs.definitions import Concurrency, JobTarget, RateLimit, RetryPolicy
from duly.wire.pages import NextPageToken
from duly.wire.runs import FollowedJob, Run, TargetSummary
from duly.wire.schema.schedule_schema import ScheduleShape
from duly.wire.schema.shapes import TAGS_MAX, Asked, Duration, IdempotencyKey, Moment, Name, Priority, Told

NODES_MAX = 1_000
AFTER_MAX = 100
# What the schema says and the domain checks; the runs of a node that is mapped have a number behind it.
_NODE = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
NODE_PATTERN = rf"^{_NODE}(\[[0-9]{{1,4}}\])?$"
NodeName = Annotated[
    str,
    Meta(
        min_length=1,
        description="1 to 100 letters, digits, _, - and .; the first a letter, a digit or _.",
        extra_json_schema={"pattern": f"^{_NODE}$", "maxLength": 100},
    ),
]

Payload = Annotated[
    dict[str, Any], Meta(description="What the target is given, by name. At most 256 KiB, 64 levels deep.")
]
Tags = Annotated[list[Name], Meta(max_length=TAGS_MAX, description="Words to find it by.")]


class FunctionTarget(Asked, frozen=True, tag_field="type", tag="function"):
    """A function that a worker knows by this name."""

    handler: Name


NodeTarget = FunctionTarget | WebhookTarget | CommandTarget | ContainerTarget


class NodeEdge(Asked, frozen=True):
    """A node that another waits for, and the end of it that lets that one run."""

    node: NodeName
    on: Annotated[
        Literal["success", "failure", "always"], Meta(description="always: however it ends, also when it is skipped.")
    ] = "success"


class NodeReference(Asked, frozen=True, rename={"node": "$result"}):
    """The result of another node, or with steps a part of it."""

    node: NodeName
    path: Annotated[
        list[str | Annotated[int, Meta(ge=0)]], Meta(max_length=64, description="Keys of objects and places in lists.")
    ] = msgspec.field(default_factory=list)


class NodeDefinition(Asked, frozen=True):
    """A node of a workflow: a job without a schedule, and what it waits for.

    Anywhere in its payload `{"$result": "extract", "path": ["rows", 0]}` stands for the result of a node that it waits for,
    directly or through others, or a part of it. `{"$error": "extract"}` stands for what went wrong with one whose failure or end
    it waits for: an object with `state`, `class`, `message` and `attempts`, or null. With `map`, one run is made for each item of
    a list, and `{"$item": true}` stands for it.
    """

    target: NodeTarget
    after: Annotated[
        list[NodeName | NodeEdge],
        Meta(max_length=NODES_MAX, description="Nodes that must have ended; a name alone: that must have succeeded."),
    ] = msgspec.field(default_factory=list)
    map: NodeReference | None = None
    queue: Name = "default"
    priority: Priority = 5
    payload: Payload = msgspec.field(default_factory=dict)
    retry: RetryPolicy | None = None
    timeout: Duration | None = None
    concurrency: Concurrency | None = None
    rate_limit: RateLimit | None = None
    expires_at: Annotated[Moment, Meta(description="Not started after this; then it ends as expired.")] | None = None
    expires_after: (
        Annotated[Duration, Meta(description="Not started when so long has passed since the workflow was submitted.")]
        | None
    ) = None
    tags: Tags = msgspec.field(default_factory=list)


Nodes = Annotated[
    dict[NodeName, NodeDefinition],
    Meta(min_length=1, max_length=NODES_MAX, description="By their names: at most 1,000, those added later included."),
]


class WorkflowTarget(Asked, frozen=True, tag_field="type", tag="workflow"):
    """A whole workflow, started each time; the run ends when it has ended. Without a name of its own it has that of its job."""

    nodes: Nodes
    name: Name | None = None


Target = FunctionTarget | WebhookTarget | CommandTarget | ContainerTarget | WorkflowTarget


class JobDefinition(Asked, frozen=True):
    """What is to be run, and when: by a schedule, or for each event that matches. With neither: now, once."""

    target: Target
    name: Name | None = None
    queue: Name = "default"
    priority: Priority = 5
    payload: Payload = msgspec.field(default_factory=dict)
    schedule: ScheduleShape | None = None
    on_event: EventMatch | None = None
    retry: RetryPolicy | None = None
    timeout: Duration | None = None
    concurrency: Concurrency | None = None
    rate_limit: RateLimit | None = None
    expires_at: (
        Annotated[Moment, Meta(description="Of a one-shot: not started after this; then it ends as expired.")] | None
    ) = None
    expires_after: (
        Annotated[Duration, Meta(description="Not started when so long has passed since its scheduled moment.")] | None
    ) = None
    tags: Tags = msgspec.field(default_factory=list)
    on_done: Callback | None = None
    on_dead: Callback | None = None


# A merge patch (RFC 7396) of a definition; what comes of it is read as a definition.
JobPatch = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/JobPatch"})]


class NewJob(JobDefinition, frozen=True):
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


class Job(Told, frozen=True):
    """A job as it stands. A one-shot is its own only run: its `job_id` is its `run_id`."""

    job_id: UUID
    name: str | None
    status: Literal["active", "paused", "completed", "cancelled"]
    target: JobTarget
    queue: str
    priority: int
    payload: Payload | None
    schedule: ScheduleShape | None
    on_event: EventMatch | None
    description: str
    next_run_at: Moment | None
    next_fires: list[Fire]
    retry: RetryPolicy | None
    timeout: str | None
    concurrency: Concurrency | None
    tags: list[str]
    version: int
    owner: str
    source: str | None
    pause_reason: str | None
    last_run: LastRun | None
    created_at: Moment | None
    on_done: ToldCallback | None = None
    on_dead: ToldCallback | None = None
    rate_limit: RateLimit | None = None
    expires_at: Moment | None = None
    expires_after: str | None = None
    after: list[FollowedJob] = msgspec.field(default_factory=list)
    run_id: Annotated[UUID | None, Meta(description="Of a one-shot, its run; null where a job may fire again.")] = None


# The fields of a job that only the server writes, in its place in the body of a PUT: what was read can be put back as it is.
_READ_ONLY = Annotated[Any, Meta(description="Told by the server; ignored here.", extra_json_schema={"readOnly": True})]
_PutJob = msgspec.defstruct(
    "PutJob",
    [(name, _READ_ONLY, None) for name in Job.__struct_fields__ if name not in JobDefinition.__struct_fields__],
    bases=(JobDefinition,),
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    module=__name__,
    namespace={"__doc__": "A definition, or a job as it was read: fields that only the server writes are ignored."},
)
PutJob = cast("type[JobDefinition]", _PutJob)


class JobSummary(Told, frozen=True):
    """A job in a list."""

    job_id: UUID
    name: str | None
    status: Literal["active", "paused", "completed", "cancelled"]
    target: TargetSummary
    queue: str
    priority: int
    schedule: ScheduleShape | None
    on_event: EventMatch | None
    next_run_at: Moment | None
    tags: list[str]
    version: int
    owner: str
    source: str | None
    pause_reason: str | None
    created_at: Annotated[Moment | None, Meta(description="Of a one-shot without a name it is not known.")]
    run_id: Annotated[UUID | None, Meta(description="Of a one-shot without a name, its run.")] = None


class JobList(Told, frozen=True):
    """A page of jobs, the newest first unless asked otherwise."""

    items: list[JobSummary]
    next_page_token: NextPageToken


class CreatedJob(Told, frozen=True):
    """A job that was accepted: it is durable. `run_id` is the run of a one-shot.

    `run` is there when its end was waited for, and came.
    """

    job_id: UUID
    run_id: UUID | None
    name: str | None
    status: Literal["active", "paused", "completed", "cancelled"]
    next_run_at: Moment | None
    next_fires: list[Fire]
    description: str
    version: int
    run: Run | None = None
