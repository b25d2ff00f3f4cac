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
from duly.wire.schema.shapes import Asked, IdempotencyKey, Reason, Told

# The states of a workflow by name; those of domain/workflows/workflow.py.
WorkflowState = Literal["running", "paused", "cancelling", "succeeded", "failed", "cancelled"]
NodeState = Literal["waiting", "ready", "running", "succeeded", "failed", "cancelled", "skipped", "expired"]


# Of those that a map has made, too.
AnyNode = Annotated[str, Meta(min_length=1, max_length=120, extra_json_schema={"pattern": NODE_PATTERN})]


class NewWorkflow(WorkflowSpec, frozen=True, kw_only=True):
    """A workflow to be started. `idempotency_key` means the same as the header."""

    idempotency_key: IdempotencyKey | None = None


class StartedWorkflow(Told, frozen=True):
    """A workflow that was accepted: it is durable, and its first nodes are ready."""

    workflow_id: UUID
    name: str
    state: WorkflowState
    nodes: int


class WorkflowSummary(Told, frozen=True):
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


class Edge(Told, frozen=True):
    """A node that another waits for, and the end of it that lets that one run."""

    node: str
    on: Literal["success", "failure", "always"]


class Node(Told, frozen=True):
    """A node of a workflow as it stands. `run_id` is that of its run, which tells the rest; `attempt` is told while it lives.

    A node that is mapped has no run, but one node for each item, named `node[0]` and so on, with its name in `item_of`;
    `items` is how many they are. `added_by` is the node that has added it.
    """

    name: str
    state: NodeState
    run_id: UUID
    target: TargetSummary
    queue: str
    after: list[Edge]
    attempt: int | None
    released_at: Moment | None
    ended_at: Moment | None
    reason: str | None
    result_bytes: int | None
    items: int | None
    item_of: str | None
    added_by: str | None
    replays: int


class Workflow(Told, frozen=True):
    """A workflow as it stands, with all its nodes. `run_id` is the run whose target it is, where a schedule has started it."""

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
    """A node with its payload as it was asked for, and what it came to."""

    workflow_id: UUID
    payload: Any
    result: Any


class WorkflowCancellation(Asked, frozen=True):
    """Why it is cancelled."""

    reason: Reason = "cancelled on request"


class WorkflowStatus(Told, frozen=True):
    """How a workflow stands now."""

    workflow_id: UUID
    state: WorkflowState


class WorkflowReplay(Asked, frozen=True):
    """From which node on: it and all that follow from it are run again, and the others keep their results.

    A dry run says what would be done, or why it cannot be, and does nothing.
    """

    node: AnyNode
    dry_run: bool = False


class WorkflowReplayed(Told, frozen=True):
    """The nodes that will run again, the items that their maps drop and make anew, and how many others keep their results."""

    workflow_id: UUID
    state: WorkflowState
    nodes: list[str]
    # Always there; of an older server they are not.
    remade: list[str] = msgspec.field(default_factory=list)
    kept: int = 0
    dry_run: bool = False


class NodesToAdd(Asked, frozen=True):
    """Nodes that a running node adds: itself by its name and the fence of its run, and they by their names.

    What follows after the running node waits for them as well. A node without `after` waits for the one that adds it.
    """

    node: AnyNode
    fence: Annotated[int, Meta(ge=1, lt=2**62)]
    nodes: Annotated[
        dict[NodeName, NodeSpec], Meta(max_length=NODES_MAX, description="Nodes by name; empty: no change.")
    ]


class NodesAdded(Told, frozen=True):
    """The nodes that were added; of those that had been added before, nothing was changed."""

    workflow_id: UUID
    nodes: list[str]
