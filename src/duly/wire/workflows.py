"""Workflows as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from duly.domain.fields import Moment
from duly.domain.jobs.spec import NODE_PATTERN, NodeName, NodeSpec, WorkflowSpec
from duly.domain.workflows.workflow import NODES_MAX
from duly.wire.pages import Page
from duly.wire.runs import TargetSummary
from duly.wire.schema.shapes import IdempotencyKey, Reason, RequestModel, ResponseModel

# The states of a workflow by name; those of domain/workflows/workflow.py.
WorkflowState = Literal["running", "paused", "cancelling", "succeeded", "failed", "cancelled"]
NodeState = Literal["waiting", "ready", "running", "succeeded", "failed", "cancelled", "skipped", "expired"]


# including those that a map has made
AnyNode = Annotated[str, Meta(min_length=1, max_length=120, extra_json_schema={"pattern": NODE_PATTERN})]


class NewWorkflow(WorkflowSpec, frozen=True, kw_only=True):
    """A workflow to start. `idempotency_key` means the same as the header."""

    idempotency_key: IdempotencyKey | None = None


class StartedWorkflow(ResponseModel, frozen=True):
    """An accepted workflow: it is durable, and its first nodes are ready."""

    workflow_id: UUID
    name: str
    state: WorkflowState
    nodes: int


class WorkflowSummary(ResponseModel, frozen=True):
    """A workflow in a list."""

    workflow_id: UUID
    name: str
    state: WorkflowState
    tags: list[str]
    nodes: int
    submitted_at: Moment
    ended_at: Moment | None
    reason: str | None


class WorkflowList(Page[WorkflowSummary], frozen=True):
    """A page of workflows, the newest first."""


class Edge(ResponseModel, frozen=True):
    """A node that another depends on, and the required outcome."""

    node: str
    on: Literal["success", "failure", "always"]


class Node(ResponseModel, frozen=True):
    """A node of a workflow. `run_id` is its run, which has the rest; `attempt` is present while it is active.

    A mapped node has no run, but one node for each item, named `node[0]` and so on, with its name in `item_of`; `items`
    is their number. `added_by` is the node that has added it.
    """

    name: str
    state: NodeState
    run_id: UUID
    target: TargetSummary
    queue: str
    depends_on: list[Edge]
    attempt: int | None
    released_at: Moment | None
    ended_at: Moment | None
    reason: str | None
    result_bytes: int | None
    items: int | None
    item_of: str | None
    added_by: str | None
    replays: int


class Workflow(ResponseModel, frozen=True):
    """A workflow, with all its nodes. `run_id` is the run whose target it is, if a schedule has started it."""

    workflow_id: UUID
    name: str
    state: WorkflowState
    tags: list[str]
    submitted_at: Moment
    ended_at: Moment | None
    reason: str | None
    run_id: UUID | None
    replays: int
    nodes: list[Node]


class NodeResult(Node, frozen=True):
    """A node with its requested payload, and its result."""

    workflow_id: UUID
    payload: Any
    result: Any


class WorkflowCancellation(RequestModel, frozen=True):
    """The reason of a cancel."""

    reason: Reason = "cancelled on request"


class WorkflowStatus(ResponseModel, frozen=True):
    """The state of a workflow."""

    workflow_id: UUID
    state: WorkflowState


class WorkflowReplay(RequestModel, frozen=True):
    """The node to replay from: it and its descendants run again, and the others keep their results.

    A dry run returns the plan, or why it is refused, and changes nothing.
    """

    node: AnyNode
    dry_run: bool = False


class WorkflowReplayed(ResponseModel, frozen=True):
    """The nodes that will run again, the items that their maps drop and create again, and how many others keep their
    results.
    """

    workflow_id: UUID
    state: WorkflowState
    nodes: list[str]
    # Always there; of an older server they are not.
    recreated: list[str] = msgspec.field(default_factory=list)
    kept: int = 0
    dry_run: bool = False


class NodesToAdd(RequestModel, frozen=True):
    """Nodes that a running node adds: its own name and its run's fence, and the new nodes by their names.

    The children of the running node wait for them as well. A node without `depends_on` depends on the one that adds it.
    """

    node: AnyNode
    fence: Annotated[int, Meta(ge=1, lt=2**62)]
    nodes: Annotated[
        dict[NodeName, NodeSpec], Meta(max_length=NODES_MAX, description="Nodes by name; empty: no change.")
    ]


class NodesAdded(ResponseModel, frozen=True):
    """The nodes that were added; those that had been added before were not changed."""

    workflow_id: UUID
    nodes: list[str]
