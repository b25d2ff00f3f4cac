"""The spec of a stored job, as people and programs read it.

Secrets are shown as `***`, and redacted values as `*** (rule)`. A spec that was read can be sent back: there, each stands
for the stored value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

import msgspec

from duly.domain.duration import to_iso
from duly.domain.errors import InvalidOption
from duly.domain.fields import non_defaults
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.jobs.spec import (
    Callback,
    Concurrency,
    EventMatch,
    JobSpec,
    NodeEdge,
    NodeReference,
    NodeSpec,
    RateLimit,
    RetryPolicy,
    Target,
    WorkflowSpec,
    WorkflowTarget,
)
from duly.domain.limits.concurrency import FIFO, in_words
from duly.domain.redaction import redacted
from duly.domain.runs.callbacks import Callback as KnownCallback
from duly.domain.runs.callbacks import Callbacks
from duly.domain.runs.expiry import expiry_moment
from duly.domain.runs.options import RunOptions, RunPolicy
from duly.domain.runs.payload import read_anyhow
from duly.domain.runs.retry import described_policy
from duly.domain.targets.masking import masked, masked_callbacks
from duly.domain.targets.spec import FunctionTarget, spec_of_target
from duly.domain.targets.target import WorkflowTarget as KnownWorkflow
from duly.domain.targets.target import is_reserved, type_of
from duly.domain.triggers.on_event import ON_EVENT
from duly.domain.workflows.target import workflow_of
from duly.domain.workflows.workflow import Edge, Node, On, Workflow


def spec_of(job: Submission | Recurring, *, is_shown: bool = True, above: Sequence[str] | None = None) -> JobSpec:
    """Return the spec of a job; `is_shown`: its secrets are masked, and its payload redacted, also by the rules `above`.

    Raises InvalidOption where this version cannot read its target.
    """
    return JobSpec(
        target=target_spec(job.handler, job.options, is_shown=is_shown, above=above),
        payload=shown_payload(job.payload, job.options, above) if is_shown else read_anyhow(job.payload),
        queue=job.queue,
        priority=job.priority,
        name=job.name if isinstance(job, Recurring) else None,
        **waits_of(job.schedule if isinstance(job, Recurring) else _moment(job)),
        **rules_of(job.options, is_shown=is_shown),
    )


def shown_payload(payload: str, options: RunOptions, above: Sequence[str] | None = None) -> Any:
    """Return a payload as it is shown: redacted by the rules of its job, and by those above them."""
    value, rules = read_anyhow(payload), options.rules(above)
    return redacted(value, rules) if rules else value


def rules_of(options: RunOptions, *, is_shown: bool = True) -> dict[str, Any]:
    """Return the fields of a spec that are stored among the options of a job."""
    return {"tags": list(options.metadata.tags), **run_rules_of(options, is_shown=is_shown)}


def run_rules_of(options: RunOptions, *, is_shown: bool = True) -> dict[str, Any]:
    """Return the fields of a spec that a run shows as its definition; `retry` is None where it is left to the handler."""
    policy, callbacks = options.policy, options.metadata.callbacks
    callbacks = (masked_callbacks(callbacks) if is_shown else callbacks) or Callbacks()
    return {
        "retry": msgspec.convert(described_policy(policy.retry), RetryPolicy) if policy.own else None,
        "timeout": _duration(policy.timeout_seconds),
        "concurrency": _concurrency(policy),
        "rate_limit": _rate_limit(policy),
        "expires_at": None if policy.expires_at is None else expiry_moment(policy.expires_at),
        "expires_after": _duration(policy.expires_seconds),
        "on_end": _callback(callbacks.end),
        "on_failure": _callback(callbacks.failure),
        "redact": list(options.metadata.redact),
    }


def carried_of(options: RunOptions) -> dict[str, Any]:
    """Return the metadata that a job carries of the request that created it; a change that does not mention it leaves
    it.
    """
    known = options.metadata
    carried = {"request_id": known.request_id, "traceparent": known.traceparent}
    return {name: value for name, value in carried.items() if value is not None}


def waits_of(shape: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return when a job runs: its schedule, or its events."""
    match = None if shape is None else shape.get(ON_EVENT)
    if match is None:
        return {"schedule": shape, "on_event": None}
    return {"schedule": None, "on_event": EventMatch(**match)}


def workflow_spec_of(workflow: Workflow) -> WorkflowSpec:
    """Return the spec of a workflow that is yet to be submitted, its secrets as they are."""
    callbacks = workflow.callbacks or Callbacks()
    return WorkflowSpec(
        name=workflow.name,
        nodes=_nodes(workflow.nodes, is_shown=False),
        tags=list(workflow.tags),
        on_end=_callback(callbacks.end),
        on_failure=_callback(callbacks.failure),
    )


def shown_target(handler: str, options: RunOptions, above: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the target as plain values, its secrets masked; only its type, if this version cannot read it."""
    try:
        spec = target_spec(handler, options, above=above)
    except InvalidOption:
        return {"type": type_of(handler)}
    if isinstance(spec, WorkflowTarget):
        return non_defaults(spec)
    return {name: value for name, value in msgspec.to_builtins(spec).items() if value is not None}


def target_spec(
    handler: str, options: RunOptions, *, is_shown: bool = True, above: Sequence[str] | None = None
) -> Target:
    """Return the spec of a target. Raises InvalidOption where this version cannot read it."""
    target = options.policy.target
    if isinstance(target, KnownWorkflow):
        return WorkflowTarget(name=target.name, nodes=_nodes(workflow_of(target).nodes, is_shown=is_shown, above=above))
    if target is None and is_reserved(handler):
        raise InvalidOption(
            "this version of Duly cannot read the job's target; upgrade Duly: pip install --upgrade duly"
        )
    if target is None:
        return FunctionTarget(handler=handler)
    return spec_of_target(masked(target) if is_shown else target)


def _nodes(nodes: Sequence[Node], *, is_shown: bool, above: Sequence[str] | None = None) -> dict[str, NodeSpec]:
    return {node.name: _node(node, is_shown=is_shown, above=above) for node in nodes}


def _node(node: Node, *, is_shown: bool, above: Sequence[str] | None) -> NodeSpec:
    shot = node.submission
    return NodeSpec(
        target=cast(Any, target_spec(shot.handler, shot.options, is_shown=is_shown)),
        depends_on=[_edge(edge) for edge in node.depends_on],
        map=None if node.map is None else NodeReference(node=node.map.node, path=list(node.map.path)),
        queue=shot.queue,
        priority=shot.priority,
        payload=shown_payload(shot.payload, shot.options, above) if is_shown else msgspec.json.decode(shot.payload),
        **{name: rule for name, rule in rules_of(shot.options).items() if name not in ("on_end", "on_failure")},
    )


def _edge(edge: Edge) -> str | NodeEdge:
    return edge.parent if edge.on is On.SUCCESS else NodeEdge(node=edge.parent, on=cast(Any, edge.on.value))


def _concurrency(policy: RunPolicy) -> Concurrency | None:
    if policy.concurrency is None:
        return None
    return Concurrency(key=policy.concurrency[0], limit=policy.concurrency[1], order=FIFO if policy.fifo else None)


def _rate_limit(policy: RunPolicy) -> RateLimit | None:
    if policy.rate is None:
        return None
    key, per_second, burst = policy.rate
    return RateLimit(key=key, **in_words(per_second), burst=burst)


def _callback(callback: KnownCallback | None) -> Callback | None:
    return None if callback is None else Callback(url=callback.url, job=callback.job, queue=callback.queue)


def _moment(shot: Submission) -> dict[str, Any] | None:
    if shot.at is not None:
        return {"trigger": {"type": "at", "at": shot.at.isoformat()}}
    return {"trigger": {"type": "at", "delay": to_iso(shot.delay)}} if shot.delay else None


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else to_iso(timedelta(seconds=seconds))
