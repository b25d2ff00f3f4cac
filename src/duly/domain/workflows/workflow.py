"""Workflows: runs that depend on each other, as an acyclic graph, checked as a whole before anything is stored.

A node is a one-shot and its parents, each with the condition under which it counts. A node runs when all its parents
have ended and all conditions hold; when one does not, it is skipped, which is an end like any other. The store applies
these rules, in `duly.holds_for`, `duly.end_of_workflow` and `duly.advance`; `tests/graphs.py` states them again as a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any, NoReturn

import msgspec

from duly.domain.counting import few
from duly.domain.errors import InvalidWorkflow
from duly.domain.jobs.job import Submission, check_name
from duly.domain.runs.callbacks import Callbacks
from duly.domain.triggers.errors import shown
from duly.domain.workflows.references import Fault, Item, Reference, read_reference, uses_in

NODES_MAX = 1_000
EDGES_MAX = 50_000
NODE_NAME_CHARACTERS_MAX = 100
_LISTED_MAX = 20
_NODE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class On(StrEnum):
    """The condition of an edge."""

    SUCCESS = "success"
    FAILURE = "failure"
    ALWAYS = "always"


class NodeState(StrEnum):
    """The state of a node in its workflow; whether it runs at this moment is in its run's box."""

    WAITING = "waiting"  # for its parents
    READY = "ready"  # released: scheduled, ready, running or waiting for another attempt
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # its run is dead
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"  # an edge did not hold


class WorkflowState(StrEnum):
    """The state of a workflow. The last three are final, until a node is replayed."""

    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


WORKFLOW_STATES = tuple(map(str, WorkflowState))
# States of nodes that failed to do their work.
UNDONE = frozenset({NodeState.FAILED, NodeState.EXPIRED, NodeState.CANCELLED})
NODE_ENDS = UNDONE | {NodeState.SUCCEEDED, NodeState.SKIPPED}
FINAL = frozenset({WorkflowState.SUCCEEDED, WorkflowState.FAILED, WorkflowState.CANCELLED})


class Edge(msgspec.Struct, frozen=True):
    """A parent, and its required outcome."""

    parent: str
    on: On = On.SUCCESS


class Node(msgspec.Struct, frozen=True):
    """A node: its job and its parents; with `map`, one run for each item of a list that is the result of a node before it."""

    name: str
    submission: Submission
    depends_on: tuple[Edge, ...] = ()
    map: Reference | None = None


class Workflow(msgspec.Struct, frozen=True):
    """A whole workflow as requested."""

    name: str
    nodes: tuple[Node, ...]
    tags: tuple[str, ...] = ()
    callbacks: Callbacks | None = None
    request_id: str | None = None
    traceparent: str | None = None


def read_edges(node: str, depends_on: object) -> tuple[Edge, ...]:
    """Parse the parents of a node: names, or each with its condition. Raises InvalidWorkflow."""
    if not isinstance(depends_on, Sequence) or isinstance(depends_on, str):
        _refuse(
            f"depends_on {shown(depends_on)} of node {shown(node)} is not a list; give one: [{shown(depends_on)}]",
            node,
            "depends_on",
        )
    return tuple(_read_edge(node, number, given) for number, given in enumerate(depends_on))


def _read_edge(node: str, number: int, given: object) -> Edge:
    match given:
        case str():
            return Edge(given)
        case {"node": str(parent), **rest} if rest.keys() <= {"on"}:
            return Edge(parent, _read_condition(node, number, parent, rest.get("on", On.SUCCESS)))
    return _refuse(
        f"depends_on {shown(given)} of node {shown(node)} is not a dependency; give a node's name,"
        ' or {"node": its name, "on": "success", "failure" or "always"}',
        node,
        "depends_on",
        number,
    )


def _read_condition(node: str, number: int, parent: str, on: object) -> On:
    if isinstance(on, str) and on in tuple(On):
        return On(on)
    return _refuse(
        f"node {shown(node)} depends on {shown(parent)} on {shown(on)}; use success, failure or always",
        *(node, "depends_on", number, "on"),
    )


def read_map(node: str, given: object) -> Reference | None:
    """Parse the list that a node maps over. Raises InvalidWorkflow."""
    if given is None or isinstance(given, Reference):
        return given
    if not isinstance(given, Mapping):
        _refuse(
            f'map {shown(given)} of node {shown(node)} is not a reference to a result; give {{"$result": "its node"}}',
            node,
            "map",
        )
    use = read_reference(given, lambda message: _refuse(f"map of node {shown(node)}: {message}", node, "map"))
    if not isinstance(use, Reference):
        _refuse(f'map of node {shown(node)} names no result; give {{"$result": "its node"}}', node, "map")
    return use


def check_workflow(workflow: Workflow) -> tuple[str, ...]:
    """Check a workflow as a whole, and return its nodes with parents first. Raises InvalidWorkflow."""
    check_name(workflow.name, "workflow")
    return check_nodes(workflow.nodes)


def check_nodes(nodes: Sequence[Node], known: Collection[str] = (), count: int = 0) -> tuple[str, ...]:
    """Check nodes that depend on each other, or on `known` existing ones, of `count` in all. Raises InvalidWorkflow."""
    if not nodes:
        _refuse("a workflow needs at least one node")
    if count + len(nodes) > NODES_MAX:
        _refuse(f"{count + len(nodes)} nodes are too many; the limit is {NODES_MAX} per workflow. Merge some")
    for error in faults_in(nodes, known):
        raise error
    return _order(nodes)


def faults_in(nodes: Sequence[Node], known: Collection[str] = ()) -> list[InvalidWorkflow]:
    """Return every fault of the graph, except those that can only be seen after others are fixed."""
    if named := _faults([lambda: _check_edges(nodes), lambda: _check_names(nodes)]):
        return named
    names = {node.name for node in nodes}
    if hung := _faults([partial(_check_parents, node, names, known) for node in nodes]):
        return hung
    if circle := _faults([lambda: _order(nodes)]):
        return circle
    before = ancestors(nodes)
    return _faults([partial(_check_uses, node, before[node.name], names, known) for node in nodes])


def _faults(checks: Iterable[Callable[[], object]]) -> list[InvalidWorkflow]:
    found = []
    for check in checks:
        try:
            check()
        except InvalidWorkflow as error:
            found.append(error)
    return found


def check_node_name(name: object) -> str:
    """Check the name of a node. Raises InvalidWorkflow."""
    if isinstance(name, str) and len(name) <= NODE_NAME_CHARACTERS_MAX and _NODE_NAME.fullmatch(name):
        return name
    return _refuse(
        f"node {shown(name)} is not a name: 1 to {NODE_NAME_CHARACTERS_MAX} letters, digits, _, - and .,"
        " the first a letter, a digit or _",
        *([name] if isinstance(name, str) else []),
    )


def _check_edges(nodes: Sequence[Node]) -> None:
    if sum(len(node.depends_on) for node in nodes) > EDGES_MAX:
        _refuse(f"more than {EDGES_MAX} dependencies are too many; add a node in between")


def _check_names(nodes: Sequence[Node]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        check_node_name(node.name)
        if node.name in names:
            _refuse(f"node {shown(node.name)} is there twice; give each a name of its own", node.name)
        if node.submission.at is not None or node.submission.delay is not None:
            _refuse(
                f"node {shown(node.name)} has a time; a node runs when its dependencies have ended: leave the time out",
                node.name,
                "schedule",
            )
        names.add(node.name)
    return names


def _check_parents(node: Node, names: Collection[str], known: Collection[str]) -> None:
    seen: set[str] = set()
    for number, edge in enumerate(node.depends_on):
        where = (node.name, "depends_on", number)
        if edge.parent == node.name:
            _refuse(f"node {shown(node.name)} depends on itself: {node.name} → {node.name}", *where)
        if edge.parent not in names and edge.parent not in known:
            _refuse(
                f"node {shown(node.name)} depends on {shown(edge.parent)}, which is not a node of this workflow:"
                f" {edge.parent} → {node.name}",
                *where,
            )
        if edge.parent in seen:
            _refuse(f"node {shown(node.name)} names parent {shown(edge.parent)} twice; leave one out", *where)
        seen.add(edge.parent)


def _order(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Sort nodes behind their parents, else in the order given. Raises InvalidWorkflow on a cycle."""
    sorter: TopologicalSorter[str] = TopologicalSorter({node.name: () for node in nodes})
    names = {node.name for node in nodes}
    for node in nodes:
        sorter.add(node.name, *(edge.parent for edge in node.depends_on if edge.parent in names))
    try:
        return tuple(sorter.static_order())
    except CycleError as error:
        _, *circle = error.args[1]
        first = circle.index(min(circle))
        path = " → ".join([*circle[first:], *circle[: first + 1]])
        _refuse(f"nodes depend on each other in a cycle: {path}", circle[first], "depends_on")


def ancestors(nodes: Sequence[Node]) -> dict[str, frozenset[str]]:
    """Return the ancestors of each node of an acyclic graph."""
    parents = {node.name: [edge.parent for edge in node.depends_on] for node in nodes}
    found: dict[str, frozenset[str]] = {}
    for name in _order(nodes):
        found[name] = frozenset(parents[name]).union(*(found.get(parent, ()) for parent in parents[name]))
    return found


def covered_by(edges: Iterable[tuple[str, str]], node: str) -> frozenset[str]:
    """Return the nodes that a replay from `node` repeats: itself and its descendants, by edges from parent to child."""
    children: dict[str, list[str]] = {}
    for parent, child in edges:
        children.setdefault(parent, []).append(child)
    covered, open_ = {node}, [node]
    while open_:
        fresh = [child for child in children.get(open_.pop(), ()) if child not in covered]
        covered.update(fresh)
        open_ += fresh
    return frozenset(covered)


def recreated_by(maps: Mapping[str, str], covered: Collection[str], node: str) -> frozenset[str]:
    """Return the items that a replay from `node` drops, to be created again with their map; it keeps the siblings of
    its start.
    """
    return frozenset(item for item, of in maps.items() if of in covered and of != maps.get(node))


def is_item(name: str) -> bool:
    """Return whether a node is an item of a map, by its name."""
    return name.endswith("]")


def sinks(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return the nodes that no other of them depends on."""
    waited_for = {edge.parent for node in nodes for edge in node.depends_on}
    return tuple(node.name for node in nodes if node.name not in waited_for)


def _check_uses(node: Node, before: Collection[str], names: Collection[str], known: Collection[str]) -> None:
    """Refuse references to nodes that are no ancestors."""
    where = (node.name, "payload")
    uses = uses_in(
        node.submission.payload, lambda message: _refuse(f"payload of node {shown(node.name)}: {message}", *where)
    )
    for use in [*uses, *([node.map] if node.map else [])]:
        what = "error" if isinstance(use, Fault) else "result"
        if isinstance(use, Item):
            if node.map is None:
                _refuse(f'node {shown(node.name)} uses "$item" without a map; add map', *where)
        elif isinstance(use, Fault) and Edge(use.node) in node.depends_on:
            _refuse(
                f"node {shown(node.name)} uses the error of {shown(use.node)}, but runs only when that has succeeded;"
                f' let it wait for its failure: after [{{"node": {shown(use.node)}, "on": "failure"}}], or "always"',
                *where,
            )
        elif use.node not in names and use.node not in known:
            _refuse(
                f"node {shown(node.name)} uses the {what} of {shown(use.node)}, which is not a node of this workflow;"
                f" there are {listed(sorted({*names, *known} - {node.name}))}",
                *where,
            )
        elif use.node not in before and use.node not in known:
            _refuse(
                f"node {shown(node.name)} uses the {what} of {shown(use.node)}, which it does not depend on;"
                f" let it wait for it: after [{shown(use.node)}]",
                *where,
            )


def listed(names: Sequence[str]) -> str:
    """List as many node names as fit a sentence."""
    return few(names, _LISTED_MAX) or "no others"


def _refuse(message: str, *where: Any) -> NoReturn:
    raise InvalidWorkflow(message, ("nodes", *where) if where else ())
