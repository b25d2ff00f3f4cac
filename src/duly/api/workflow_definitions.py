"""Between the shape of a workflow on the wire and the workflow we know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from duly.api import definitions
from duly.domain.errors import InvalidWorkflow, Refused
from duly.domain.jobs.job import check_name, check_tags
from duly.domain.runs.callbacks import check_then
from duly.domain.targets.target import Allowed
from duly.domain.workflows.workflow import Node, Workflow, check_workflow
from duly.wire.jobs.jobs import NodeDefinition
from duly.wire.workflows import WorkflowDefinition


def workflow(asked: WorkflowDefinition, allowed: Allowed, marks: Mapping[str, Any]) -> Workflow:
    """Read a workflow, whole, and check that all it does is allowed here. Raises InvalidWorkflow, InvalidOption."""
    then = check_then(definitions.callback_of(asked.on_done), definitions.callback_of(asked.on_dead))
    allowed.check_told(then)
    name, tags = check_name(asked.name, "name"), check_tags(asked.tags)
    known = Workflow(name, nodes(asked.nodes, allowed), tags, then, **marks)
    check_workflow(known)
    return known


def nodes(asked: Mapping[str, NodeDefinition], allowed: Allowed) -> tuple[Node, ...]:
    """Read nodes that are allowed here; they are not yet checked against each other. Raises InvalidWorkflow."""
    return tuple(_admitted(node, allowed) for node in definitions.nodes_of(asked))


def _admitted(node: Node, allowed: Allowed) -> Node:
    try:
        return msgspec.structs.replace(node, submission=definitions.admitted(node.submission, allowed))
    except Refused as error:
        raise InvalidWorkflow(f"node {node.name!r}: {error}", ("nodes", node.name)) from None
