"""Jobs as a file would ask for them: written so that a plan made from it finds no difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from duly.domain.duration import to_iso
from duly.domain.jobs.manifest_diff import Kept, told_of
from duly.domain.jobs.manifest_schedule import SHORT
from duly.domain.limits.concurrency import told_concurrency, told_rate
from duly.domain.runs.expiry import expiry_moment
from duly.domain.runs.retry import told_shortly
from duly.domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT, Options, is_marks_only, read_options, target_of
from duly.domain.targets.shapes import asked_target, told_target
from duly.domain.targets.target import FUNCTION, WORKFLOW, Command, Container, Target, Webhook, WorkflowTarget, type_of
from duly.domain.workflows.references import RESULT, Reference
from duly.domain.workflows.target import workflow_of
from duly.domain.workflows.workflow import Edge, Node, On, Workflow

# What need not be said.
_USUAL: Mapping[type[Target], Target] = {Webhook: Webhook(""), Command: Command(()), Container: Container("")}
# The one key that says all, where nothing stands beside it.
_ALONE = {"jitter": "max", "misfire": "policy", "overlap": "policy"}


def export(source: str, jobs: Sequence[Kept], calendars: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Give the file that asks for these jobs, and for the calendars they use."""
    made = {job.name: _job(job) for job in jobs}
    used = {use["name"] for job in jobs for use in job.shape.get("calendars") or ()}
    kept = {
        name: {key: value for key, value in definition.items() if key != "name" and value is not None}
        for name, definition in calendars.items()
        if name in used
    }
    return {"source": source} | ({"calendars": kept} if kept else {}) | {"jobs": made}


def workflow_spec(workflow: Workflow) -> dict[str, Any]:
    """Give what is asked for to start a workflow; secrets are written as they are, because nobody has them yet."""
    then = told_of(Options(then=workflow.then))
    said = {"name": workflow.name, "tags": list(workflow.tags) or None, **then, "nodes": nodes_spec(workflow.nodes)}
    return {key: value for key, value in said.items() if value is not None}


def told_workflow(target: WorkflowTarget, *, is_shown: bool = True) -> dict[str, Any]:
    """Write a workflow that a job starts; `is_shown`: as it is told to people, without secrets."""
    nodes = nodes_spec(workflow_of(target).nodes, is_shown=is_shown)
    return {"type": type_of(WORKFLOW), "name": target.name, "nodes": nodes}


def nodes_spec(nodes: Sequence[Node], *, is_shown: bool = False) -> dict[str, Any]:
    """Write nodes by their names; `is_shown`: as they are told to people, without secrets."""
    return {node.name: _node(node, is_shown=is_shown) for node in nodes}


def _node(node: Node, *, is_shown: bool) -> dict[str, Any]:
    shot, target = node.submission, target_of(node.submission.options)
    what = {"type": FUNCTION, "handler": shot.handler} if target is None else _asked(target, is_shown=is_shown)
    said: dict[str, Any] = {
        "target": what,
        "after": [_edge(edge) for edge in node.after] or None,
        "map": None if node.map is None else _reference(node.map),
        "queue": None if shot.queue == QUEUE_DEFAULT else shot.queue,
        "priority": None if shot.priority == PRIORITY_DEFAULT else shot.priority,
        "payload": msgspec.json.decode(shot.payload) or None,
        **{key: value for key, value in _options(shot.options).items() if key not in ("on_done", "on_dead")},
        "expires_at": _expires_at(shot.options),
    }
    return {key: value for key, value in said.items() if value is not None}


def _reference(reference: Reference) -> dict[str, Any]:
    return {RESULT: reference.node, **({"path": list(reference.path)} if reference.path else {})}


def _edge(edge: Edge) -> str | dict[str, str]:
    return edge.parent if edge.on is On.SUCCESS else {"node": edge.parent, "on": edge.on.value}


def _asked(target: Target, *, is_shown: bool) -> dict[str, Any]:
    told = told_target(target) if is_shown else msgspec.to_builtins(asked_target(target))
    usual = msgspec.structs.asdict(_USUAL[type(target)])
    return {name: value for name, value in told.items() if name == "type" or value != _listed(usual.get(name))}


def _job(job: Kept) -> dict[str, Any]:
    payload = msgspec.json.decode(job.payload or "{}")
    said: dict[str, Any] = {
        "target": _target(job),
        "schedule": _schedule(job),
        "queue": None if job.queue == QUEUE_DEFAULT else job.queue,
        "priority": None if job.priority == PRIORITY_DEFAULT else job.priority,
        "payload": payload or None,
        **_options(job.options),
        "paused": job.is_paused or None,
    }
    return {key: value for key, value in said.items() if value is not None}


def _target(job: Kept) -> str | dict[str, Any]:
    """Write what runs: a function by its name alone. Secrets are written as ***, which stands for the value that the job has."""
    target = target_of(job.options)
    if target is None:
        return job.handler
    if isinstance(target, WorkflowTarget):
        told = told_workflow(target)
        return {key: value for key, value in told.items() if key != "name" or value != job.name}
    return _asked(target, is_shown=True)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _options(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    options = read_options(text, None)
    tags: dict[str, Any]
    tags = {"tags": list(options.tags) or None} | {name: _short(told) for name, told in told_of(options).items()}
    tags["expires_after"] = None if options.expires_seconds is None else _period(options.expires_seconds)
    if is_marks_only(text):
        return tags
    return {
        "retry": told_shortly(options.retry),
        "timeout": None if options.timeout_seconds is None else _period(options.timeout_seconds),
        "concurrency": told_concurrency(options),
        "rate_limit": told_rate(options),
        **tags,
    }


def _expires_at(text: str | None) -> str | None:
    at = None if text is None else read_options(text, None).expires_at
    return None if at is None else expiry_moment(at).isoformat().replace("+00:00", "Z")


def _short(told: dict[str, str] | None) -> dict[str, str] | str | None:
    """Write who is told by the one word that says all, where nothing stands beside it."""
    return next(iter(told.values())) if told is not None and len(told) == 1 else told


def _period(seconds: float) -> str | float:
    return to_iso(timedelta(seconds=seconds)) if seconds == int(seconds) else seconds


def _schedule(job: Kept) -> dict[str, Any]:
    shape = {key: value for key, value in job.shape.items() if value is not None}
    trigger = {key: value for key, value in shape.pop("trigger").items() if value is not None}
    if trigger["type"] == "interval" and trigger.get("mode") != "fixed_delay" and "anchor" not in trigger:
        trigger["anchor"] = job.anchor  # So that elsewhere, too, it fires at the moments it fires at here.
    return _in_short(trigger) | {key: _part(key, value) for key, value in shape.items()}


def _in_short(trigger: Mapping[str, Any]) -> dict[str, Any]:
    for kind, (name, key, beside) in SHORT.items():
        if trigger["type"] == name and trigger.keys() <= {"type", key, *beside}:
            return {kind: trigger[key]} | {other: trigger[other] for other in beside if other in trigger}
    return {"trigger": dict(trigger)}


def _part(key: str, value: Any) -> Any:
    if key == "calendars":
        return [use["name"] if use.keys() == {"name"} else use for use in value]
    alone = _ALONE.get(key)
    return value[alone] if alone and value.keys() == {alone} else value
