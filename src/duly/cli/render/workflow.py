"""A workflow for people: what is next, what that waits for, what failed, and its nodes as a tree.

In the tree each node stands under one that it depends on, with a note on the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.client.asynchronous.client import AsyncClient
from duly.domain.counting import some
from duly.domain.workflows.workflow import NODE_ENDS, UNDONE

Node = Mapping[str, Any]
_SHOWN_MAX = 20
_WORDS = {"failure": "when {node} fails", "always": "when {node} has ended"}


async def read_workflow_row(client: AsyncClient, workflow_id: UUID) -> dict[str, Any]:
    """Read a workflow with its nodes, for display. Raises NotFound."""
    row: dict[str, Any] = msgspec.to_builtins(await client.workflows.get(workflow_id), builtin_types=(datetime, UUID))
    return row


def ended_text(nodes: Sequence[Node]) -> str:
    """Return how many nodes have ended."""
    ended = sum(node["state"] in NODE_ENDS for node in nodes)
    return f"{ended} of {some(len(nodes), 'node has', 'nodes have')} ended"


def workflow_sentences(workflow: Mapping[str, Any]) -> Iterator[str]:
    """Explain the state of a workflow."""
    nodes, workflow_id = workflow["nodes"], workflow["workflow_id"]
    open_nodes = [node for node in nodes if node["state"] not in NODE_ENDS]
    if workflow["state"] == "paused":
        yield f"it is paused: no further node starts until `duly workflows resume {workflow_id}`"
    if workflow["reason"]:
        yield str(workflow["reason"])
    yield ended_text(nodes)
    yield from _up_to([_failed(node, workflow_id) for node in nodes if node["state"] in UNDONE], "have not succeeded")
    yield from _up_to(_next(open_nodes), "are next as well")
    behind = [node for node in open_nodes if _waits_for(node, open_nodes)]
    if behind:
        yield f"{some(len(behind), 'node')} behind them: `duly workflows show {workflow_id}` shows all of them"


def _up_to(sentences: Sequence[str], words: str) -> Iterator[str]:
    yield from sentences[:_SHOWN_MAX]
    if len(sentences) > _SHOWN_MAX:
        yield f"{len(sentences) - _SHOWN_MAX} more {words}"


def _failed(node: Node, workflow_id: object) -> str:
    ended = "was cancelled" if node["state"] == "cancelled" else f"has {node['state']}"
    why = f": {node['reason']}" if node["reason"] else ""
    return f"node {node['name']} {ended}{why}; `duly workflows replay {workflow_id} {node['name']}` does it again"


def _next(open_nodes: Sequence[Node]) -> list[str]:
    """Return the nodes whose dependencies have all ended."""
    return [_status(node) for node in open_nodes if not _waits_for(node, open_nodes)]


def _status(node: Node) -> str:
    if node["items"]:
        return f"node {node['name']} waits for its {some(node['items'], 'item')}"
    if node["state"] == "waiting":
        return f"node {node['name']} has nothing left to wait for, and starts when its workflow is resumed"
    return f"node {node['name']} is {node['state']}: `duly explain {node['run_id']}` says why"


def _waits_for(node: Node, open_nodes: Sequence[Node]) -> list[str]:
    names = {one["name"] for one in open_nodes}
    return [edge["node"] for edge in node["depends_on"] if edge["node"] in names]


def drawn(nodes: Sequence[Node], most: int) -> list[dict[str, Any]]:
    """Return nodes in the order of the tree, up to so many, each with its line in `drawing` and a remark in `note`."""
    above = {node["name"]: _above(node) for node in nodes}
    below: dict[str | None, list[Node]] = {}
    for node in nodes:
        below.setdefault(above[node["name"]], []).append(node)
    found = []
    for node, drawing in _walk(below):
        found.append({**node, "drawing": drawing, "note": _remark(node, above[node["name"]])})
        if len(found) == most:
            break
    return found


def _above(node: Node) -> str | None:
    """Choose the parent of a node in the tree: for runs of a map the map, else its last dependency."""
    above: str | None = node["item_of"] or (node["depends_on"][-1]["node"] if node["depends_on"] else None)
    return above


def _walk(below: Mapping[str | None, Sequence[Node]]) -> Iterator[tuple[Node, str]]:
    # Without recursion: a chain of a thousand nodes is as deep.
    waiting = [(node, "", "") for node in reversed(below.get(None, []))]
    while waiting:
        node, lead, branch = waiting.pop()
        yield node, f"{lead}{branch}{node['name']}"
        under = lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        inner = below.get(node["name"], [])
        for number, child in enumerate(reversed(inner)):
            waiting.append((child, under, "└─ " if number == 0 else "├─ "))


def _remark(node: Node, above: str | None) -> str:
    """Describe why it ended so, or what it waits for besides the node above it, or otherwise than for its success."""
    if node["reason"]:
        return str(node["reason"])
    if node["item_of"]:
        return ""
    words = [
        _WORDS.get(edge["on"], "after {node}").format(node=edge["node"])
        for edge in node["depends_on"]
        if edge["node"] != above or edge["on"] != "success"
    ]
    return ", ".join(words)
