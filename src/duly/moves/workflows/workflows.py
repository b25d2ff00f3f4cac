"""Workflows: submit, cancel, pause, replay, and add nodes from within.

The effects of a node's end are no move of ours: the database applies them, in the transaction of whatever ended the
node.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from uuid import UUID

import msgspec

from duly.domain.errors import LeaseOver, NotFound, Unsettled, WorkflowChanged
from duly.domain.runs.run import HORIZON, Run
from duly.domain.tenancy.audit import Action, Subject
from duly.domain.workflows.workflow import (
    Edge,
    Node,
    Workflow,
    WorkflowState,
    check_nodes,
    check_workflow,
    covered_by,
    recreated_by,
    sinks,
)
from duly.moves.admin.audit import actor_of, audited, record
from duly.moves.admin.seal import sealed_node, sealed_workflow
from duly.store.connection.database import Connection, Database
from duly.store.tables import workflows as store
from duly.store.tables.workflows import SubmittedWorkflow, WorkflowChange

_LOOKS_MAX = 10
_encoder = msgspec.msgpack.Encoder()


@audited
async def submit_workflow(
    connection: Connection, tenant: int, key: str, workflow: Workflow, *, for_run: Run | None = None
) -> SubmittedWorkflow:
    """Submit a whole workflow. Repeated with the same key and body, it returns the same.

    For a run whose target it is, that run's id takes the place of the key. Raises InvalidWorkflow, KeyConflict.
    """
    check_workflow(workflow)
    if for_run is None:  # those of a run's target were sealed when its job was written
        workflow = sealed_workflow(connection, tenant, workflow)
    digest = sha256(_encoder.encode(workflow)).digest()
    created = await store.submit(connection, tenant, key, digest, workflow, HORIZON, for_run)
    subject, count = Subject("workflow", str(created.workflow_id), workflow.name), int(not created.replayed)
    await record(connection, tenant, Action.WORKFLOW_CREATED, subject, count, nodes=len(workflow.nodes))
    return created


@audited
async def cancel_workflow(
    database: Database, tenant: int, workflow_id: UUID, reason: str = "cancelled"
) -> WorkflowState:
    """Cancel what waits and ask what runs to stop. Returns the workflow's state; an ended one stays. Raises NotFound."""
    changed = _found(await store.cancel(database, tenant, workflow_id, reason), workflow_id)
    if changed.is_new:
        await _record(database, tenant, Action.WORKFLOW_CANCELLED, workflow_id, reason=reason)
    return WorkflowState(changed.state)


@audited
async def pause_workflow(database: Database, tenant: int, workflow_id: UUID) -> WorkflowState:
    """Pause a workflow: nothing more of it starts. Raises NotFound, WorkflowChanged."""
    changed = _found(await store.pause(database, tenant, workflow_id), workflow_id)
    if changed.state != WorkflowState.PAUSED:
        raise WorkflowChanged(f"workflow {workflow_id} is {changed.state}; only a running one can be paused")
    if changed.is_new:
        await _record(database, tenant, Action.WORKFLOW_PAUSED, workflow_id)
    return WorkflowState.PAUSED


@audited
async def resume_workflow(database: Database, tenant: int, workflow_id: UUID) -> WorkflowState:
    """Resume a paused workflow. Raises NotFound, WorkflowChanged."""
    changed = _found(await store.resume(database, tenant, workflow_id), workflow_id)
    if changed.state == WorkflowState.CANCELLING:
        raise WorkflowChanged(f"workflow {workflow_id} is {changed.state}; wait for its end before you replay a node")
    if changed.is_new:
        await _record(database, tenant, Action.WORKFLOW_RESUMED, workflow_id)
    return WorkflowState(changed.state)


class Replay(msgspec.Struct, frozen=True):
    """The plan of a replay: the nodes that run again, the items that their maps drop and create again, and how many stay."""

    nodes: list[str]
    recreated: list[str]
    kept: int


@audited
async def replay_workflow(database: Database, tenant: int, workflow_id: UUID, node: str) -> Replay:
    """Replay a node and its descendants. Raises NotFound, WorkflowChanged, Unsettled."""
    replay = await _replay(database, tenant, workflow_id, node, is_dry=False)
    await _record(database, tenant, Action.WORKFLOW_REPLAYED, workflow_id, node=node, nodes=len(replay.nodes))
    return replay


async def plan_replay(database: Database, tenant: int, workflow_id: UUID, node: str) -> Replay:
    """Plan a replay without changing anything. Raises, as a replay does, NotFound, WorkflowChanged, Unsettled."""
    return await _replay(database, tenant, workflow_id, node, is_dry=True)


async def _replay(database: Database, tenant: int, workflow_id: UUID, node: str, *, is_dry: bool) -> Replay:
    for _ in range(_LOOKS_MAX):  # nodes may be added between the look and the move
        graph = await store.graph(database, tenant, workflow_id)
        if graph is None:
            raise _not_found(workflow_id)
        if node not in graph.nodes:
            raise NotFound(f"workflow {workflow_id} has no node {node!r}; it has {', '.join(sorted(graph.nodes)[:20])}")
        covered = sorted(covered_by(graph.edges, node))
        answer = await store.replay(database, tenant, workflow_id, node, covered, len(graph.nodes), is_dry=is_dry)
        if answer in ("replayed", "replayable"):
            recreated = sorted(recreated_by(graph.maps, covered, node))
            return Replay(covered, recreated, len(graph.nodes) - len(covered) - len(recreated))
        if answer != "again":
            raise WorkflowChanged(f"workflow {workflow_id} cannot be replayed from {node!r}: {answer}")
    raise Unsettled(f"workflow {workflow_id}")


@audited
async def add_nodes(database: Database, tenant: int, run_id: UUID, fence: int, nodes: Sequence[Node]) -> list[str]:
    """Add nodes behind the running node that asks. Nodes with a name that it has added before are left as they are.

    Returns the names. Raises InvalidWorkflow, LeaseOver, WorkflowChanged.
    """
    own = await store.node_of(database, tenant, run_id)
    if own is None:
        raise NotFound(f"run {run_id} is not a node of a workflow, so it cannot add nodes")
    if not nodes:
        return []
    hung = [node if node.depends_on else msgspec.structs.replace(node, depends_on=(Edge(own.node),)) for node in nodes]
    check_nodes(hung, {own.node})
    hung = [sealed_node(database, tenant, node) for node in hung]
    answer = await store.add_nodes(database, tenant, own, run_id, fence, hung, sinks(hung))
    if answer == "lost":
        raise LeaseOver(f"run {run_id}, fence {fence}: the lease was lost; stop here")
    if answer != "added":
        raise WorkflowChanged(f"nodes cannot be added to workflow {own.workflow_id}: {answer}")
    await _record(database, tenant, Action.WORKFLOW_EXTENDED, own.workflow_id, node=own.node, nodes=len(hung))
    return [node.name for node in hung]


async def _record(database: Database, tenant: int, action: Action, workflow_id: UUID, **detail: object) -> None:
    found = await store.standing(database, tenant, workflow_id) if actor_of(database) else None
    if found is not None:
        await record(database, tenant, action, Subject("workflow", str(workflow_id), found[0]), **detail)


async def run_workflow_tasks(database: Database) -> bool:
    """Do pending workflow tasks beside their nodes' ends. Returns whether runs wait to be settled by workflows that ended."""
    while (answer := await store.run_workflow_task(database)) == "done":
        pass
    return answer == "settle"


def _found(changed: WorkflowChange | None, workflow_id: UUID) -> WorkflowChange:
    if changed is None:
        raise _not_found(workflow_id)
    return changed


def _not_found(workflow_id: UUID) -> NotFound:
    return NotFound(f"no workflow {workflow_id}; `duly workflows list` lists them")
