"""The nodes of a workflow as a tree: each under one node that it waits for, and a word on the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Node = Mapping[str, Any]
_WORDS = {"failure": "when {node} fails", "always": "when {node} has ended"}


def drawn(nodes: Sequence[Node], most: int) -> list[dict[str, Any]]:
    """Give nodes in the order of the tree, up to so many, each with its line in `drawing` and a word in `note`."""
    above = {node["name"]: _above(node) for node in nodes}
    below: dict[str | None, list[Node]] = {}
    for node in nodes:
        below.setdefault(above[node["name"]], []).append(node)
    found = []
    for node, drawing in _walk(below):
        found.append({**node, "drawing": drawing, "note": _note(node, above[node["name"]])})
        if len(found) == most:
            break
    return found


def _above(node: Node) -> str | None:
    """Choose the node that one stands under: of the runs of a map the map, else the last one it waits for."""
    above: str | None = node["item_of"] or (node["after"][-1]["node"] if node["after"] else None)
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


def _note(node: Node, above: str | None) -> str:
    """Say why it ended so, or what it waits for besides the node above it, or otherwise than for its success."""
    if node["reason"]:
        return str(node["reason"])
    if node["item_of"]:
        return ""
    words = [
        _WORDS.get(edge["on"], "after {node}").format(node=edge["node"])
        for edge in node["after"]
        if edge["node"] != above or edge["on"] != "success"
    ]
    return ", ".join(words)
