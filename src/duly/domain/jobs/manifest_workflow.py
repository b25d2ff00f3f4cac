"""A workflow in a file: its nodes, read with all that is wrong with each, and then checked against each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from duly.domain.errors import InvalidWorkflow
from duly.domain.gathering import gather
from duly.domain.jobs.job import Submission
from duly.domain.jobs.manifest_shapes import NodeShape
from duly.domain.problems import Path, Problem
from duly.domain.triggers.errors import shown
from duly.domain.workflows.workflow import NODES_MAX, Node, faults_in, read_edges, read_map

T = TypeVar("T")
ReadNode = Callable[[NodeShape, Path, list[Problem]], Submission | None]


def read_nodes(given: object, path: Path, problems: list[Problem], read: ReadNode) -> tuple[Node, ...]:
    """Read the nodes of the workflow at a path; `read` reads one as a job. What is wrong is among the problems."""
    if not isinstance(given, Mapping) or not given:
        problems.append(Problem((*path, "nodes"), f"{shown(given)} is not a mapping of names; give at least one node"))
        return ()
    if len(given) > NODES_MAX:
        problems.append(Problem((*path, "nodes"), f"there are {len(given)}; the limit is {NODES_MAX} nodes a workflow"))
        return ()
    nodes = [_node(str(name), part, path, problems, read) for name, part in given.items()]
    found = tuple(node for node in nodes if node is not None)
    # What could not be read is taken to be right in itself, so that the others are told as well.
    unread = [str(name) for name, node in zip(given, nodes, strict=True) if node is None]
    problems += [Problem((*path, *error.where), str(error)) for error in faults_in(found, unread)]
    return found


def _node(name: str, given: object, path: Path, problems: list[Problem], read: ReadNode) -> Node | None:
    place, before = (*path, "nodes", name), len(problems)
    shape = gather(NodeShape, given, place, problems, raw=("target", "after", "map"))
    if shape is None:
        return None
    edges = _noting(path, problems, lambda: read_edges(name, shape.after or []))
    over = _noting(path, problems, lambda: read_map(name, shape.map))
    shot = read(shape, place, problems)
    return None if shot is None or len(problems) > before else Node(name, shot, edges or (), over)


def _noting(path: Path, problems: list[Problem], read: Callable[[], T]) -> T | None:
    try:
        return read()
    except InvalidWorkflow as error:
        problems.append(Problem((*path, *error.where), str(error)))
    return None
