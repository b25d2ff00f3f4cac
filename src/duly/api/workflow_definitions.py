"""Workflows between a request and the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from duly.api.definitions import admitted
from duly.domain.errors import InvalidWorkflow, Refused
from duly.domain.jobs.compile import AT_ONCE, compile_workflow
from duly.domain.jobs.spec import NodeSpec, WorkflowSpec
from duly.domain.targets.target import Allowed
from duly.domain.workflows.workflow import Node, Workflow, check_workflow


def workflow(spec: WorkflowSpec, allowed: Allowed, marks: Mapping[str, Any]) -> Workflow:
    """Give the workflow that a request asks for, whole, if all it does is allowed here. Raises InvalidWorkflow, InvalidOption."""
    known = compile_workflow(spec, **marks)
    allowed.check_told(known.then)
    known = msgspec.structs.replace(known, nodes=tuple(_admitted(node, allowed) for node in known.nodes))
    check_workflow(known)
    return known


def nodes(given: Mapping[str, NodeSpec], allowed: Allowed) -> tuple[Node, ...]:
    """Give nodes that are allowed here; they are not yet checked against each other. Raises InvalidWorkflow."""
    return tuple(_admitted(node, allowed) for node in AT_ONCE.nodes((), given))


def _admitted(node: Node, allowed: Allowed) -> Node:
    try:
        return msgspec.structs.replace(node, submission=admitted(node.submission, allowed))
    except Refused as error:
        raise InvalidWorkflow(f"node {node.name!r}: {error}", ("nodes", node.name)) from None
