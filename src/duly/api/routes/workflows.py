"""Workflows: start them, read them and their nodes; cancel, pause, replay and extend them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from duly.api import paging
from duly.api.operations import Call, Routes
from duly.api.response import Response
from duly.domain.errors import InvalidWorkflow, LeaseOver, NotFound, Refused
from duly.domain.jobs.compile import AT_ONCE, compile_workflow
from duly.domain.jobs.filter import WORKFLOWS, parse
from duly.domain.jobs.job import check_reason
from duly.domain.jobs.spec import WorkflowSpec
from duly.domain.runs.payload import read_anyhow
from duly.domain.targets.target import Allowed
from duly.domain.tenancy.audit import Action
from duly.domain.workflows.described import described_nodes
from duly.domain.workflows.workflow import Node as KnownNode
from duly.domain.workflows.workflow import NodeState, check_workflow
from duly.domain.workflows.workflow import Workflow as KnownWorkflow
from duly.moves.workflows import workflows as moves
from duly.store.connection.database import Database
from duly.store.reads import lists
from duly.store.tables import workflows
from duly.wire.pages import WorkflowsQuery
from duly.wire.runs import TargetSummary
from duly.wire.schema.shapes import Nothing
from duly.wire.workflows import (
    Edge,
    NewWorkflow,
    Node,
    NodeResult,
    NodesAdded,
    NodesToAdd,
    StartedWorkflow,
    Workflow,
    WorkflowCancellation,
    WorkflowList,
    WorkflowReplay,
    WorkflowReplayed,
    WorkflowStatus,
    WorkflowSummary,
)

routes = Routes("workflows", reads="jobs:read", writes="jobs:write")
# A thousand nodes, each with a payload of a few KiB.
WORKFLOW_BYTES_MAX = 8_388_608


@routes.add(
    "POST /v1/workflows",
    responses={202: StartedWorkflow},
    refuses=("invalid_workflow", "invalid_option", "rate_limited", "quota_reached", "shed"),
    body_bytes_max=WORKFLOW_BYTES_MAX,
    is_submit=True,
    audits=(Action.WORKFLOW_CREATED,),
)
async def create_workflow(call: Call[Nothing, NewWorkflow]) -> Response:
    """Start a workflow: it is durable as a whole when this answers, and its first nodes are ready.

    It is checked as a whole: cycles, unknown parents, results of nodes that are no ancestors, and more than 1,000 nodes
    are refused, and `errors` list the problems. Each node counts as a submit. One whose first nodes are all of priority
    7 or less urgent, in overloaded queues, is refused: 429, code `shed`.
    """
    requested = compiled_workflow(call.body, call.services.allowed, call.run_metadata)
    await call.services.shedding.look()
    call.services.shedding.check_all(
        call.tenant,
        [(node.submission.queue, node.submission.priority) for node in requested.nodes if not node.depends_on],
    )
    if len(requested.nodes) > 1:
        await call.admit(len(requested.nodes) - 1)
    created = await moves.submit_workflow(
        call.database, call.tenant, call.key or str(call.services.rng.uuid()), requested
    )
    for queue in {node.submission.queue for node in requested.nodes if not node.depends_on}:
        call.wake(queue)
    state: Any = created.state
    body = StartedWorkflow(
        workflow_id=created.workflow_id, name=requested.name, state=state, nodes=len(requested.nodes)
    )
    return Response(202, body, {"Location": f"/v1/workflows/{created.workflow_id}"})


@routes.add("GET /v1/workflows", responses={200: WorkflowList}, refuses=("invalid_filter",), may_lag=True)
async def list_workflows(call: Call[WorkflowsQuery, None]) -> Response:
    """List workflows, the newest first."""
    requested, of = call.query, f"workflows {call.query.filter or ''}"
    after = paging.position(requested.page_token, of, UUID)
    page = await lists.workflows(
        call.database, call.tenant, parse(requested.filter or "", WORKFLOWS), requested.page_size, after
    )
    items = [WorkflowSummary.of(row) for row in page.rows]
    return paging.page(WorkflowList, items, page.after, of)


@routes.add("GET /v1/workflows/{workflow_id}", responses={200: Workflow})
async def read_workflow(call: Call[Nothing, None]) -> Response:
    """Read a workflow, with all its nodes: the state of each, its run, and its dependencies."""
    found = await _found(call.database, call.tenant, call.id("workflow_id"))
    nodes = [_node(node) for node in described_nodes(found["nodes"])]
    return Response(200, Workflow.of(found, nodes=nodes))


@routes.add("GET /v1/workflows/{workflow_id}/nodes/{node}", responses={200: NodeResult})
async def read_node(call: Call[Nothing, None]) -> Response:
    """Read a node of a workflow, with its result."""
    workflow_id, name = call.id("workflow_id"), call.path["node"]
    found = await _found(call.database, call.tenant, workflow_id)
    reported = next((node for node in described_nodes(found["nodes"]) if node["name"] == name), None)
    kept = await workflows.node_result(call.database, call.tenant, workflow_id, name)
    if reported is None or kept is None:
        raise NotFound(f"workflow {workflow_id} has no node {name!r}; GET /v1/workflows/{workflow_id} shows them")
    payload, result = (None if kept[part] is None else read_anyhow(kept[part]) for part in ("payload", "result"))
    return Response(200, NodeResult.of(_node(reported), workflow_id=workflow_id, payload=payload, result=result))


@routes.add(
    "POST /v1/workflows/{workflow_id}/cancel",
    responses={200: WorkflowStatus},
    refuses=("invalid_option",),
    audits=(Action.WORKFLOW_CANCELLED,),
)
async def cancel_workflow(call: Call[Nothing, WorkflowCancellation]) -> Response:
    """Cancel a workflow: waiting nodes never start, active ones are asked to stop, and it ends when all have ended.

    An ended one stays as it is.
    """
    workflow_id, reason = call.id("workflow_id"), check_reason(call.body.reason)
    state = await moves.cancel_workflow(call.database, call.tenant, workflow_id, reason)
    return _status(workflow_id, state)


@routes.add(
    "POST /v1/workflows/{workflow_id}/pause",
    responses={200: WorkflowStatus},
    refuses=("conflict",),
    audits=(Action.WORKFLOW_PAUSED,),
)
async def pause_workflow(call: Call[Nothing, None]) -> Response:
    """Pause a workflow: no further node starts; active ones go on."""
    workflow_id = call.id("workflow_id")
    state = await moves.pause_workflow(call.database, call.tenant, workflow_id)
    return _status(workflow_id, state)


@routes.add(
    "POST /v1/workflows/{workflow_id}/resume",
    responses={200: WorkflowStatus},
    refuses=("conflict",),
    audits=(Action.WORKFLOW_RESUMED,),
)
async def resume_workflow(call: Call[Nothing, None]) -> Response:
    """Resume a paused workflow. One that is not paused stays as it is."""
    workflow_id = call.id("workflow_id")
    state = await moves.resume_workflow(call.database, call.tenant, workflow_id)
    await _wake(call, workflow_id)
    return _status(workflow_id, state)


@routes.add(
    "POST /v1/workflows/{workflow_id}/replay",
    responses={200: WorkflowReplayed, 202: WorkflowReplayed},
    refuses=("conflict",),
    audits=(Action.WORKFLOW_REPLAYED,),
)
async def replay_workflow(call: Call[Nothing, WorkflowReplay]) -> Response:
    """Replay a node and its descendants. They keep the ids of their runs; the other nodes keep their results.

    A dry run answers 200 with the plan, is refused as a replay would be, and changes nothing.
    """
    workflow_id = call.id("workflow_id")
    move = moves.plan_replay if call.body.dry_run else moves.replay_workflow
    replay = await move(call.database, call.tenant, workflow_id, call.body.node)
    if call.body.dry_run:
        found = await _found(call.database, call.tenant, workflow_id)
        return Response(200, WorkflowReplayed.of(replay, workflow_id=workflow_id, state=found["state"], dry_run=True))
    found = await _wake(call, workflow_id)
    body = WorkflowReplayed.of(replay, workflow_id=workflow_id, state=found["state"], dry_run=False)
    return Response(202, body, {"Location": f"/v1/workflows/{workflow_id}"})


@routes.add(
    "POST /v1/workflows/{workflow_id}/nodes",
    responses={200: NodesAdded},
    refuses=("invalid_workflow", "lease_lost", "conflict"),
    body_bytes_max=WORKFLOW_BYTES_MAX,
    audits=(Action.WORKFLOW_EXTENDED,),
)
async def add_nodes(call: Call[Nothing, NodesToAdd]) -> Response:
    """Add nodes on behalf of a running one, which its run's fence proves. A node that it has added before is left as it is."""
    workflow_id, requested = call.id("workflow_id"), call.body
    own = await workflows.node_result(call.database, call.tenant, workflow_id, requested.node)
    if own is None:
        await _found(call.database, call.tenant, workflow_id)
    if own is None or own["state"] != NodeState.READY:
        raise LeaseOver(
            f"workflow {workflow_id} has no node {requested.node!r} that is running; only a running node can add nodes"
        )
    nodes = AT_ONCE.nodes((), requested.nodes)
    _check_allowed(nodes, call.services.allowed)
    names = await moves.add_nodes(call.database, call.tenant, own["run_id"], requested.fence, nodes)
    return Response(200, NodesAdded(workflow_id=workflow_id, nodes=names))


def compiled_workflow(spec: WorkflowSpec, allowed: Allowed, metadata: Mapping[str, Any]) -> KnownWorkflow:
    """Compile the workflow of a request, if everything in it is allowed here. Raises InvalidWorkflow, InvalidOption."""
    known = compile_workflow(spec, **metadata)
    allowed.check_callbacks_allowed(known.callbacks)
    _check_allowed(known.nodes, allowed)
    check_workflow(known)
    return known


def _check_allowed(nodes: Sequence[KnownNode], allowed: Allowed) -> None:
    for node in nodes:
        try:
            allowed.admitted(node.submission)
        except Refused as error:
            raise InvalidWorkflow(f"node {node.name!r}: {error}", ("nodes", node.name)) from None


async def _wake(call: Call[Any, Any], workflow_id: UUID) -> Mapping[str, Any]:
    """Wake the queues of nodes that may run now, and return the workflow."""
    found = await _found(call.database, call.tenant, workflow_id)
    for queue in {node["queue"] for node in found["nodes"] if node["state"] == "ready"}:
        call.wake(queue)
    return found


async def _found(database: Database, tenant: int, workflow_id: UUID) -> Mapping[str, Any]:
    found = await workflows.find(database, tenant, workflow_id)
    if found is None:
        raise NotFound(f"no workflow {workflow_id}; GET /v1/workflows lists them")
    return found


def _status(workflow_id: UUID, state: Any) -> Response:
    return Response(200, WorkflowStatus(workflow_id=workflow_id, state=state))


def _node(reported: Mapping[str, Any]) -> Node:
    return Node.of(
        reported,
        target=TargetSummary(**reported["target"]),
        depends_on=[Edge(**edge) for edge in reported["depends_on"]],
    )
