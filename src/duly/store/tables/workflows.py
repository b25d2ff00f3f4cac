"""Workflows: their nodes and edges, and the statements that move them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from duly.domain.runs.run import Run
from duly.domain.workflows.references import HANDED_BYTES_MAX, Reference, fault_of
from duly.domain.workflows.workflow import Node, Workflow
from duly.store.boxes.options import encode
from duly.store.connection.database import Connection, Database
from duly.store.connection.statements import columns, load

SQL = load("tables/workflows")


class SubmittedWorkflow(msgspec.Struct, frozen=True):
    """The store's answer. `replayed`: it existed before, and nothing was created."""

    workflow_id: UUID
    replayed: bool
    state: str


class Graph(msgspec.Struct, frozen=True):
    """The names of a workflow's nodes, its edges from parent to child, and the map of each item."""

    nodes: frozenset[str]
    edges: tuple[tuple[str, str], ...]
    maps: Mapping[str, str] = {}


class WorkflowChange(msgspec.Struct, frozen=True):
    """The state of a workflow, and whether this move changed it: of two at once, one does."""

    state: str
    is_new: bool


class OwnNode(msgspec.Struct, frozen=True):
    """The node of a run."""

    workflow_id: UUID
    node: str


class Handed(msgspec.Struct):
    """The inputs of a node: others' results as JSON, which of them are its parents', and why some are not stored."""

    results: dict[str, str | None] = {}
    parents: list[str] = []
    missing: dict[str, str] = {}
    bytes: int = 0


async def submit(
    connection: Connection,
    tenant: int,
    key: str,
    body_hash: bytes,
    workflow: Workflow,
    horizon: timedelta,
    for_run: Run | None = None,
) -> SubmittedWorkflow:
    """Insert a workflow, its nodes, its edges and its runs; for a run whose target it is, under an id computed from that."""
    metadata = {"request_id": workflow.request_id, "traceparent": workflow.traceparent}
    rows = await connection.fetch(
        SQL["submit_workflow"],
        tenant,
        key,
        body_hash,
        workflow.name,
        list(workflow.tags),
        None if workflow.callbacks is None else msgspec.json.encode(workflow.callbacks).decode(),
        msgspec.json.encode({name: value for name, value in metadata.items() if value is not None}).decode(),
        None if for_run is None else for_run.run_id,
        0 if for_run is None else for_run.history.replays,
        *_columns(workflow.nodes),
        horizon,
    )
    workflow_id, replayed, state = rows[0]
    return SubmittedWorkflow(UUID(str(workflow_id)), replayed, state)


def _columns(nodes: Sequence[Node]) -> tuple[list[Any], ...]:
    """Return nodes and edges as the arrays that the moves take."""
    edges = [(edge.parent, node.name, edge.on.value) for node in nodes for edge in node.depends_on]
    shots = [node.submission for node in nodes]
    return (
        [node.name for node in nodes],
        *columns(shots, "handler", "payload", "queue", "priority"),
        [encode(shot.options) for shot in shots],
        [None if node.map is None else msgspec.json.encode(node.map).decode() for node in nodes],
        [parent for parent, _, _ in edges],
        [child for _, child, _ in edges],
        [on for _, _, on in edges],
    )


async def standing(database: Database, tenant: int, workflow_id: UUID) -> tuple[str, str] | None:
    """Read the name and the state of a workflow."""
    row = await database.fetchrow(SQL["standing"], tenant, workflow_id)
    return (row["name"], row["state"]) if row else None


async def cancel(database: Database, tenant: int, workflow_id: UUID, reason: str) -> WorkflowChange | None:
    """End what waits and signal what runs. None: there is no such workflow."""
    return _changed(await database.fetch_one(SQL["cancel_workflow"], tenant, workflow_id, reason))


async def pause(database: Database, tenant: int, workflow_id: UUID) -> WorkflowChange | None:
    """Take back runs that have not started. None: there is no such workflow."""
    return _changed(await database.fetch_one(SQL["pause_workflow"], tenant, workflow_id))


async def resume(database: Database, tenant: int, workflow_id: UUID) -> WorkflowChange | None:
    """Release runs that may start. None: there is no such workflow."""
    return _changed(await database.fetch_one(SQL["resume_workflow"], tenant, workflow_id))


def _changed(row: asyncpg.Record) -> WorkflowChange | None:
    return None if row["state"] is None else WorkflowChange(*row)


async def of_run(database: Database, tenant: int, run_id: UUID) -> UUID | None:
    """Return the workflow that a run has started as its target; None: none yet, or its target is another."""
    found: UUID | None = await database.fetchval(SQL["of_run"], tenant, run_id)
    return found


async def graph(database: Database, tenant: int, workflow_id: UUID) -> Graph | None:
    """Read the shape of a workflow."""
    nodes = await database.fetch(SQL["names"], tenant, workflow_id)
    if not nodes:
        return None
    edges = await database.fetch(SQL["edges"], tenant, workflow_id)
    maps = {row["name"]: row["item_of"] for row in nodes if row["item_of"] is not None}
    return Graph(frozenset(row["name"] for row in nodes), tuple((row["parent"], row["child"]) for row in edges), maps)


async def replay(
    database: Database,
    tenant: int,
    workflow_id: UUID,
    node: str,
    covered: Sequence[str],
    count: int,
    *,
    is_dry: bool = False,
) -> str | None:
    """Reset nodes, the first to run at once. Returns replayed, again (nodes were added since), or why it cannot be.

    A dry run changes nothing, and returns replayable.
    """
    requested = tenant, workflow_id, node, list(covered), count, is_dry
    answer: str | None = await database.fetchval(SQL["replay_workflow"], *requested)
    return answer


async def node_of(database: Database, tenant: int, run_id: UUID) -> OwnNode | None:
    """Return the node of an active run."""
    return await database.fetch_row_as(OwnNode, SQL["node_of"], tenant, run_id)


async def add_nodes(
    database: Database, tenant: int, own: OwnNode, run_id: UUID, fence: int, nodes: Sequence[Node], last: Sequence[str]
) -> str:
    """Add nodes after one that runs; its children wait for the last of them. Returns added, lost, or why it cannot be."""
    return str(
        await database.fetchval(
            SQL["add_nodes"], tenant, own.workflow_id, own.node, run_id, fence, *_columns(nodes), list(last)
        )
    )


async def run_workflow_task(database: Database) -> str:
    """Do one due workflow task: done. Without one: settle, when there is something for `to_settle`, or none."""
    return str(await database.fetchval(SQL["run_workflow_task"]))


class ToSettle(msgspec.Struct, frozen=True):
    """An ended workflow, and the run whose target it is: awaited, on its way there, or ended."""

    task_id: int
    workflow_id: UUID
    name: str
    state: str
    reason: str | None
    replays: int
    run_id: UUID | None
    fence: int | None
    is_awaited: bool | None
    is_live: bool


async def to_settle(database: Database, limit: int) -> list[ToSettle]:
    """List the workflows whose run is to be settled."""
    return [ToSettle(*row) for row in await database.fetch(SQL["to_settle"], limit)]


async def lock_end(database: Database, workflow_id: UUID) -> tuple[str, int] | None:
    """Read the state of a workflow and its number of replays, and lock it until this transaction ends."""
    row = await database.fetchrow(SQL["lock_end"], workflow_id)
    return (row["state"], row["replays"]) if row else None


async def postpone_workflow_task(database: Database, task_id: int, delay: timedelta) -> None:
    """Postpone a workflow task, so that others are done first."""
    await database.execute(SQL["postpone_workflow_task"], task_id, delay)


async def postpone_failed_workflow_task(database: Database, task_id: int) -> None:
    """Postpone a failed workflow task, longer each time."""
    await database.execute(SQL["postpone_failed_workflow_task"], task_id)


async def drop_workflow_task(database: Database, task_id: int) -> None:
    """Delete a workflow task that was done."""
    await database.execute(SQL["drop_workflow_task"], task_id)


async def handed(
    database: Database, nodes: Sequence[tuple[UUID, str]], named: Sequence[tuple[UUID, str, str]]
) -> dict[tuple[UUID, str], Handed]:
    """Read the inputs of nodes: their parents' results, and what else they refer to."""
    rows = await database.fetch(
        SQL["handed"],
        [workflow_id for workflow_id, _ in nodes],
        [name for _, name in nodes],
        [workflow_id for workflow_id, _, _ in named],
        [name for _, name, _ in named],
        [parent for _, _, parent in named],
        HANDED_BYTES_MAX,
    )
    given: dict[tuple[UUID, str], Handed] = {}
    for row in rows:
        one = given.setdefault((row["workflow_id"], row["name"]), Handed())
        one.bytes = int(row["total"])
        if row["missing"] is not None:
            one.missing[row["parent"]] = row["missing"]
            continue
        one.results[row["parent"]] = row["result"]
        if row["is_parent"]:
            one.parents.append(row["parent"])
    return given


async def faults(database: Database, nodes: Sequence[tuple[UUID, str]]) -> dict[UUID, dict[str, dict[str, Any]]]:
    """Read the errors of nodes, by workflow and name; none of those that have succeeded or not ended."""
    rows = await database.fetch(SQL["faults"], [node[0] for node in nodes], [node[1] for node in nodes])
    found: dict[UUID, dict[str, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["workflow_id"], {})[row["name"]] = fault_of(
            row["state"], row["reason"], row["last_attempt"]
        )
    return found


async def items(database: Database, nodes: Sequence[tuple[UUID, str]]) -> dict[tuple[UUID, str], Reference]:
    """Read which part of which result each item of a map is for."""
    rows = await database.fetch(SQL["items"], [node[0] for node in nodes], [node[1] for node in nodes])
    return {(row[0], row[1]): msgspec.json.decode(row[2], type=Reference) for row in rows}


async def state(database: Database, tenant: int, workflow_id: UUID) -> str | None:
    """Return the state of a workflow, without its nodes; None: there is none of that id."""
    row = await database.fetchrow(SQL["find_workflow"], tenant, workflow_id)
    return None if row is None else str(row["state"])


async def find(database: Database, tenant: int, workflow_id: UUID) -> dict[str, Any] | None:
    """Read a whole workflow, with its nodes in the order given, each with its parents and the state of its run."""
    row = await database.fetchrow(SQL["find_workflow"], tenant, workflow_id)
    if row is None:
        return None
    edges = await database.fetch(SQL["edges"], tenant, workflow_id)
    parents: dict[str, list[dict[str, str]]] = {}
    for edge in edges:
        parents.setdefault(edge["child"], []).append({"node": edge["parent"], "on": edge["on"]})
    nodes = [dict(node) for node in await database.fetch(SQL["nodes"], tenant, workflow_id)]
    return {**dict(row), "nodes": [{**node, "parents": parents.get(node["name"], [])} for node in nodes]}


async def node_result(database: Database, tenant: int, workflow_id: UUID, node: str) -> dict[str, Any] | None:
    """Read one node with its definition and its result, JSON as text; None when there is none of that name."""
    return await database.fetch_row_with(dict, SQL["node"], tenant, workflow_id, node)
