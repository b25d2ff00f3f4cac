"""Workflows as targets: their nodes as plain values, which are among the run's options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from duly.domain.errors import InvalidWorkflow
from duly.domain.jobs.job import Submission
from duly.domain.runs.options import NO_OPTIONS, plain_of, read_plain
from duly.domain.targets.target import WorkflowTarget
from duly.domain.workflows.references import Reference
from duly.domain.workflows.workflow import Edge, Node, On, Workflow, check_workflow

BYTES_MAX = 262_144  # it moves with every run of its job


def target_for(workflow: Workflow) -> WorkflowTarget:
    """Encode a workflow as a target. Raises InvalidWorkflow."""
    check_workflow(workflow)
    target = WorkflowTarget(workflow.name, tuple(map(_plain_node, workflow.nodes)), workflow.tags, workflow.callbacks)
    written = msgspec.json.encode(target)
    if (size := len(written)) > BYTES_MAX:
        raise InvalidWorkflow(
            f"workflow {workflow.name} has {size} bytes; the limit for a workflow that a schedule starts is {BYTES_MAX}."
            " Submit it from a function instead"
        )
    return msgspec.json.decode(written, type=WorkflowTarget)  # as it is read again: lists, not tuples


def workflow_of(target: WorkflowTarget, request_id: str | None = None, traceparent: str | None = None) -> Workflow:
    """Decode the workflow of a target. Raises InvalidWorkflow."""
    try:
        nodes = tuple(map(_read, target.nodes))
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise InvalidWorkflow(f"workflow {target.name} cannot be read: {error!r}; submit it again") from None
    return Workflow(target.name, nodes, target.tags, target.callbacks, request_id, traceparent)


def plain_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node normalized, so that a default given and one left out are the same."""
    given = node.get("options")
    if given is None:
        return dict(node)
    return {**node, "options": plain_of(read_plain(given))}


def _plain_node(node: Node) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "name": node.name,
        "handler": node.submission.handler,
        "payload": node.submission.payload,
        "queue": node.submission.queue,
        "priority": node.submission.priority,
        "depends_on": [[edge.parent, edge.on.value] for edge in node.depends_on],
    }
    if node.submission.options != NO_OPTIONS:
        plain["options"] = plain_of(node.submission.options)
    if node.map is not None:
        plain["map"] = msgspec.to_builtins(node.map)
    return plain


def _read(node: Mapping[str, Any]) -> Node:
    over = node.get("map")
    submission = Submission(
        node["handler"],
        node["payload"],
        node["queue"],
        node["priority"],
        options=read_plain(node.get("options") or {}),
    )
    depends_on = tuple(Edge(parent, On(on)) for parent, on in node["depends_on"])
    return Node(node["name"], submission, depends_on, None if over is None else msgspec.convert(over, Reference))
