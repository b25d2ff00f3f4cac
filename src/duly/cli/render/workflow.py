"""A workflow, explained: what of it is next, what that waits for, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.cli.render.screen import some
from duly.client.asynchronous.client import AsyncClient
from duly.domain.workflows.workflow import NODE_ENDS, UNDONE

Node = Mapping[str, Any]
_TOLD_MAX = 20


async def read_workflow_row(client: AsyncClient, workflow_id: UUID) -> dict[str, Any]:
    """Read a workflow with its nodes, as it is shown. Raises NotFound."""
    row: dict[str, Any] = msgspec.to_builtins(await client.workflows.get(workflow_id), builtin_types=(datetime, UUID))
    return row


def how_far(nodes: Sequence[Node]) -> str:
    """Say how many nodes have come to their end."""
    ended = sum(node["state"] in NODE_ENDS for node in nodes)
    return f"{ended} of {some(len(nodes), 'node has', 'nodes have')} ended"


def workflow_sentences(workflow: Mapping[str, Any]) -> Iterator[str]:
    """Say why a workflow is where it is."""
    nodes, workflow_id = workflow["nodes"], workflow["workflow_id"]
    open_nodes = [node for node in nodes if node["state"] not in NODE_ENDS]
    if workflow["state"] == "paused":
        yield f"it is paused: no further node starts until `duly workflows resume {workflow_id}`"
    if workflow["reason"]:
        yield str(workflow["reason"])
    yield how_far(nodes)
    yield from _up_to([_failed(node, workflow_id) for node in nodes if node["state"] in UNDONE], "have not succeeded")
    yield from _up_to(_next(open_nodes), "are next as well")
    behind = [node for node in open_nodes if _waits_for(node, open_nodes)]
    if behind:
        yield f"{some(len(behind), 'node')} behind them: `duly workflows show {workflow_id}` draws them all"


def _up_to(told: Sequence[str], words: str) -> Iterator[str]:
    yield from told[:_TOLD_MAX]
    if len(told) > _TOLD_MAX:
        yield f"{len(told) - _TOLD_MAX} more {words}"


def _failed(node: Node, workflow_id: object) -> str:
    ended = "was cancelled" if node["state"] == "cancelled" else f"has {node['state']}"
    why = f": {node['reason']}" if node["reason"] else ""
    return f"node {node['name']} {ended}{why}; `duly workflows replay {workflow_id} {node['name']}` does it again"


def _next(open_nodes: Sequence[Node]) -> list[str]:
    """Tell the nodes that nothing which has not ended stands before."""
    return [_stands(node) for node in open_nodes if not _waits_for(node, open_nodes)]


def _stands(node: Node) -> str:
    if node["items"]:
        return f"node {node['name']} waits for its {some(node['items'], 'item')}"
    if node["state"] == "waiting":
        return f"node {node['name']} has nothing left to wait for, and does not start while its workflow is held"
    return f"node {node['name']} is {node['state']}: `duly explain {node['run_id']}` says why"


def _waits_for(node: Node, open_nodes: Sequence[Node]) -> list[str]:
    names = {one["name"] for one in open_nodes}
    return [edge["node"] for edge in node["after"] if edge["node"] in names]
