"""Between the shapes of workflows on the wire and the workflows we know. A node is read as a job without a schedule is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from duly.api import definitions
from duly.domain.errors import InvalidWorkflow, Refused
from duly.domain.job import Submission, check_name, check_tags
from duly.domain.references import Reference
from duly.domain.target import Allowed
from duly.domain.then import check_then
from duly.domain.workflow import Edge, Node, On, Workflow, check_workflow
from duly.wire.jobs import JobDefinition, NodeDefinition, NodeReference
from duly.wire.workflows import WorkflowDefinition

# What a node says as a job does.
_SHARED = tuple(set(NodeDefinition.__struct_fields__) & set(JobDefinition.__struct_fields__))


def workflow(asked: WorkflowDefinition, allowed: Allowed, marks: Mapping[str, Any]) -> Workflow:
    """Read a workflow, whole. Raises InvalidWorkflow, leading to what is wrong, and what else jobs are refused with."""
    then = check_then(definitions.callback_of(asked.on_done), definitions.callback_of(asked.on_dead))
    allowed.check_told(then)
    name, tags = check_name(asked.name, "name"), check_tags(asked.tags)
    known = Workflow(name, nodes(asked.nodes, allowed), tags, then, **marks)
    check_workflow(known)
    return known


def nodes(asked: Mapping[str, NodeDefinition], allowed: Allowed) -> tuple[Node, ...]:
    """Read nodes, which are not yet checked against each other. Raises InvalidWorkflow."""
    return tuple(_node(name, node, allowed) for name, node in asked.items())


def _node(name: str, asked: NodeDefinition, allowed: Allowed) -> Node:
    edges = tuple(Edge(one) if isinstance(one, str) else Edge(one.node, On(one.on)) for one in asked.after)
    return Node(name, _submission(name, asked, allowed), edges, _reference(asked.map))


def _submission(name: str, asked: NodeDefinition, allowed: Allowed) -> Submission:
    job = JobDefinition(**{field: getattr(asked, field) for field in _SHARED})
    try:
        return definitions.admitted(definitions.one_shot(job, {}), allowed)
    except Refused as error:
        raise InvalidWorkflow(f"node {name!r}: {error}", ("nodes", name)) from None


def _reference(asked: NodeReference | None) -> Reference | None:
    return None if asked is None else Reference(asked.node, tuple(asked.path))
