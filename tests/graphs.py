"""Workflows for stories: graphs in a word, and what becomes of their nodes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.runs.outcome import Failed, Outcome, Succeeded
from duly.domain.runs.retry import Retry
from duly.domain.runs.run import Run
from duly.domain.workflows.references import Reference
from duly.domain.workflows.workflow import NODE_ENDS, UNDONE, Edge, Node, NodeState, On, Workflow, WorkflowState
from duly.moves.settle import settle
from duly.moves.workflows.workflows import submit_workflow
from duly.store.connection.database import Database
from duly.store.tables import workflows
from tests.builders import RNG, a_key, a_submission, claimed, ended

ONCE = Retry(max_attempts=1)
FAILS = Failed("broken", retryable=False)
_HOLDS_FOR = {On.SUCCESS: frozenset({NodeState.SUCCEEDED}), On.FAILURE: UNDONE, On.ALWAYS: NODE_ENDS}


def a_node(name: str, *depends_on: str | Edge, over: Reference | None = None, payload: Any = None, **more: Any) -> Node:
    """Give a node behind its parents: a name, or `name!` on failure, `name?` always."""
    submission = a_submission(payload=msgspec.json.encode(payload or {}).decode(), **{"retry": ONCE, **more})
    return Node(name, submission, tuple(_edge(parent) for parent in depends_on), over)


def _edge(parent: str | Edge) -> Edge:
    if isinstance(parent, Edge):
        return parent
    on = {"!": On.FAILURE, "?": On.ALWAYS}.get(parent[-1], On.SUCCESS)
    return Edge(parent.rstrip("!?"), on)


def a_graph(shape: str, *, name: str = "nightly", **more: Any) -> Workflow:
    """Give a workflow from `a b:a c:a,b!`: each node and its parents."""
    words = [word.partition(":") for word in shape.split()]
    return Workflow(
        name, tuple(a_node(node, *(parents.split(",") if parents else ()), **more) for node, _, parents in words)
    )


async def a_workflow(database: Database, shape: str | Workflow, *, tenant: int = 1, **more: Any) -> UUID:
    """Submit a workflow."""
    workflow = a_graph(shape, **more) if isinstance(shape, str) else shape
    return (await submit_workflow(database, tenant, a_key(), workflow)).workflow_id


def pauses(on: On, end: NodeState) -> bool:
    """Say whether an edge holds, of a parent that has ended so: what `duly.holds` is held against."""
    assert end in NODE_ENDS, end
    return end in _HOLDS_FOR[on]


def is_released(node: Node, ends: Mapping[str, NodeState]) -> bool:
    """Say whether a node runs, all of whose parents have ended: what `duly.advance` is held against."""
    return all(pauses(edge.on, ends[edge.parent]) for edge in node.depends_on)


def end_of(nodes: Sequence[Node], ends: Mapping[str, NodeState], *, is_cancelling: bool) -> WorkflowState:
    """Say how a workflow ends whose nodes have ended so: what `duly.end_of_workflow` is held against."""
    if is_cancelling:
        return WorkflowState.CANCELLED
    seen_to = {edge.parent for node in nodes for edge in node.depends_on if edge.on is not On.SUCCESS}
    failed = any(ends[node.name] in UNDONE and node.name not in seen_to for node in nodes)
    return WorkflowState.FAILED if failed else WorkflowState.SUCCEEDED


def node_of(run: Run) -> str:
    """Name the node that a run is."""
    node = run.metadata.node
    assert node is not None
    return node[1]


async def taken(database: Database, worker_id: UUID) -> dict[str, Run]:
    """Claim what is ready of one workflow, by node."""
    return {node_of(run): run for run in await claimed(database, worker_id, limit=1000)}


async def end(database: Database, worker_id: UUID, runs: Iterable[Run], outcome: Outcome | None = None) -> None:
    """Settle runs, all alike."""
    await settle(database, worker_id, [ended(database, run, outcome or Succeeded()) for run in runs], RNG)


async def carried_through(
    database: Database, worker_id: UUID, outcomes: Mapping[str, Outcome] | None = None
) -> list[list[str]]:
    """Claim and settle until nothing is left. Gives the nodes that ran, wave by wave."""
    waves = []
    outcome_of = outcomes or {}
    while runs := await claimed(database, worker_id, limit=1000):
        waves.append(sorted(map(node_of, runs)))
        told = [(run, outcome_of.get(node_of(run), Succeeded(f'"{node_of(run)}"'))) for run in runs]
        await settle(database, worker_id, [ended(database, run, outcome) for run, outcome in told], RNG)
    return waves


async def whole(database: Database, workflow_id: UUID, tenant: int = 1) -> dict[str, Any]:
    """Read a workflow that is there."""
    found = await workflows.find(database, tenant, workflow_id)
    assert found is not None
    return found


async def state_of(database: Database, workflow_id: UUID) -> str:
    """Say where a workflow stands."""
    return str((await whole(database, workflow_id))["state"])


async def states_of(database: Database, workflow_id: UUID) -> dict[str, str]:
    """Say where the nodes of a workflow stand."""
    return {node["name"]: node["state"] for node in (await whole(database, workflow_id))["nodes"]}


async def result_of(database: Database, workflow_id: UUID, node: str) -> Any:
    """Read what a node came to."""
    found = await workflows.node_result(database, 1, workflow_id, node)
    assert found is not None
    return None if found["result"] is None else msgspec.json.decode(found["result"])


def names(runs: Sequence[Run] | Mapping[str, Run]) -> list[str]:
    """Name the nodes of runs."""
    return sorted(runs if isinstance(runs, Mapping) else map(node_of, runs))
