"""The definition of a job, in one place: the body of a request, the readable part of its response, the entry of a file,
and the result of SDK options and command-line flags.

A new option is a field here and its check in `domain/jobs/compile.py`, which goes from here to the stored job and back.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from duly.domain.fields import Duration, Moment, Name, Payload, Priority, Spec, Tags
from duly.domain.jobs.job import CONCURRENCY_SLOTS_MAX
from duly.domain.redaction import RULES_MAX
from duly.domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT
from duly.domain.targets.spec import CommandTarget, ContainerTarget, FunctionTarget, WebhookTarget

NODES_MAX = 1_000
# The schema states the pattern and the domain checks it; runs of a mapped node have a number after the name.
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
Url = Annotated[str, Meta(max_length=2_048, description="http or https.", examples=["https://hooks.example/done"])]
Kind = Annotated[str, Meta(min_length=1, max_length=200, description="Event type.", examples=["shop.order.placed"])]
Source = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=500,
        description="Event source, a URI reference; compared exactly.",
        examples=["https://shop.example/orders"],
    ),
]
# Read by `domain/triggers`, and stored as written; its structs are in `domain/triggers/spec.py`.
ScheduleFields = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/Schedule"})]
Numbers = int | Annotated[str, Meta(examples=["4xx", "500-599"])]
JitterPart = Literal["full", "equal", "none"] | Annotated[float, Meta(ge=0, le=1)]


class RetryRule(Spec, frozen=True, omit_defaults=True):
    """A rule for one kind of failure: exactly one of `error`, `status` and `exit`. A snooze uses up no attempt."""

    action: Literal["retry", "dead", "snooze"]
    error: (
        Annotated[str, Meta(max_length=200, description="Exception class by name or path, or a pattern: *Timeout.")]
        | None
    ) = None
    status: Annotated[Numbers, Meta(description="HTTP status of a webhook: 404, 4xx or 500-599.")] | None = None
    exit: Annotated[Numbers, Meta(description="Exit code of a command or a container: 75 or 1-10.")] | None = None
    delay: Annotated[Duration, Meta(description="Delay before the next attempt; required for snooze.")] | None = None


class RetryPolicy(Spec, frozen=True):
    """Retries of a failed run: how many, and how soon; docs/how-to/retries-and-dead-letters.md says which delays each policy
    gives.
    """

    policy: Literal["exponential", "linear", "fixed", "list"] = "exponential"
    max_attempts: Annotated[int, Meta(ge=1, le=1000)] = 5
    base: Duration = "PT1S"
    cap: Annotated[Duration, Meta(description="Longest delay of a growing policy.")] = "PT10M"
    jitter: (
        Annotated[JitterPart, Meta(description="Random part of a delay, 0 to 1; null: the policy's default.")] | None
    ) = None
    delays: Annotated[
        list[Duration], Meta(max_length=100, description="Delays of the policy list; the last one repeats.")
    ] = msgspec.field(default_factory=list)
    max_age: (
        Annotated[Duration, Meta(description="No attempt starts later than this after the first was due.")] | None
    ) = None
    rules: Annotated[list[RetryRule], Meta(max_length=32, description="Rules by error; the first match applies.")] = (
        msgspec.field(default_factory=list)
    )


class Concurrency(Spec, frozen=True):
    """At most `limit` runs of all jobs with this key run at once.

    With order fifo, they run one after another, in order.
    """

    key: Name
    limit: Annotated[int, Meta(ge=1, le=CONCURRENCY_SLOTS_MAX)] = 1
    order: Annotated[
        Literal["fifo"] | None,
        Meta(description="fifo: strictly by due time, one run at a time. Null: as slots become free."),
    ] = None


class RateLimit(Spec, frozen=True):
    """At most `limit` runs of all jobs with this key start in each `per`, evenly, across the whole fleet."""

    key: Name
    limit: Annotated[float, Meta(gt=0, le=1_000_000)]
    per: Duration = "PT1S"
    burst: Annotated[int, Meta(ge=1, le=999_999, description="Runs that may start at once after an idle period.")] = 1


class Callback(Spec, frozen=True, omit_defaults=True):
    """A completion callback: a URL, by a signed webhook on the run's queue or another; or a job, by its name or id."""

    url: Url | None = None
    job: Name | None = None
    queue: Annotated[Name, Meta(description="With url: the queue whose workers send the request.")] | None = None


class EventMatch(Spec, frozen=True):
    """The events that a job runs for. Without a source, events of any source."""

    type: Kind
    source: Source | None = None


RedactionPath = Annotated[
    str, Meta(min_length=1, max_length=200, examples=["$.card", "$.items[*].card", "$..password"])
]


class PolicySpec(Spec, frozen=True):
    """The policies of runs; null where they are left to the handler."""

    retry: RetryPolicy | None = None
    timeout: Duration | None = None
    concurrency: Concurrency | None = None
    rate_limit: RateLimit | None = None
    expires_at: Annotated[Moment, Meta(description="One-shots: if not started by then, the run expires.")] | None = None
    expires_after: (
        Annotated[
            Duration,
            Meta(
                description="The run expires if not started this long after its scheduled time; for a node, its workflow's."
            ),
        ]
        | None
    ) = None
    redact: Annotated[
        list[RedactionPath],
        Meta(max_length=RULES_MAX, description="Fields of the payload and the result that are shown as ***."),
    ] = msgspec.field(default_factory=list)


class WorkSpec(PolicySpec, frozen=True):
    """The fields that jobs and nodes of workflows share."""

    queue: Name = QUEUE_DEFAULT
    priority: Priority = PRIORITY_DEFAULT
    tags: Tags = msgspec.field(default_factory=list)


class NodeEdge(Spec, frozen=True):
    """A node that another depends on, and the outcome of it that lets that one run."""

    node: NodeName
    on: Annotated[
        Literal["success", "failure", "always"], Meta(description="always: on any end, skipped included.")
    ] = "success"


class NodeReference(Spec, frozen=True, rename={"node": "$result"}):
    """The result of another node, or with `path` a part of it."""

    node: NodeName
    path: Annotated[
        list[str | Annotated[int, Meta(ge=0)]], Meta(max_length=64, description="Object keys and list indexes.")
    ] = msgspec.field(default_factory=list)


class NodeSpec(WorkSpec, frozen=True, kw_only=True):
    """A node of a workflow: a job without a schedule, and its dependencies.

    Anywhere in its payload `{"$result": "extract", "path": ["rows", 0]}` stands for the result of a node that it
    depends on, directly or through others, or for a part of it. `{"$error": "extract"}` stands for the error of a
    dependency that it follows on failure or in any case: an object with `state`, `class`, `message` and `attempts`, or
    null. With `map`, one run is made for each item of a list, and `{"$item": true}` stands for it.
    """

    target: FunctionTarget | WebhookTarget | CommandTarget | ContainerTarget
    payload: Payload = msgspec.field(default_factory=dict)
    depends_on: Annotated[
        list[NodeName | NodeEdge],
        Meta(max_length=NODES_MAX, description="Nodes this one depends on; a plain name: that node must succeed."),
    ] = msgspec.field(default_factory=list)
    map: NodeReference | None = None


Nodes = Annotated[
    dict[NodeName, NodeSpec],
    Meta(min_length=1, max_length=NODES_MAX, description="Nodes by name: at most 1,000, nodes added later included."),
]


class WorkflowTarget(Spec, frozen=True, tag_field="type", tag="workflow"):
    """A workflow, started by each run; the run ends when the workflow has ended. Its default name is its job's."""

    nodes: Nodes
    name: Name | None = None


class WorkflowSpec(Spec, frozen=True):
    """A workflow: nodes, each with the nodes that it depends on."""

    name: Name
    nodes: Nodes
    tags: Tags = msgspec.field(default_factory=list)
    on_end: Callback | None = None
    on_failure: Callback | None = None


Target = FunctionTarget | WebhookTarget | CommandTarget | ContainerTarget | WorkflowTarget


class JobRules(WorkSpec, frozen=True):
    """A job without its target and payload, which responses show in part."""

    name: Name | None = None
    schedule: ScheduleFields | None = None
    on_event: EventMatch | None = None
    on_end: Callback | None = None
    on_failure: Callback | None = None


class JobSpec(JobRules, frozen=True, kw_only=True):
    """A job: its target, and its schedule or the events that it matches. With neither it runs once, now."""

    target: Target
    payload: Payload = msgspec.field(default_factory=dict)
