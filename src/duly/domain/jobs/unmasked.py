"""The way back of redacted payloads: `*** (rule)` in a changed job stands for the stored value at its place.

Credentials of targets are put back likewise, where they are sealed: `domain/tenancy/sealed_options.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from duly.domain.jobs.job import Recurring, Submission
from duly.domain.redaction import has_mark, restored
from duly.domain.runs.options import NO_OPTIONS, RunOptions, read_plain
from duly.domain.targets.target import WorkflowTarget

J = TypeVar("J", Submission, Recurring)


def unmasked(
    job: J, stored: str | None = None, options: RunOptions = NO_OPTIONS, above: Sequence[str] | None = None
) -> J:
    """Return a job with the values of the stored payload and nodes in the place of marks; `above` are rules beside its own.

    Raises InvalidPayload where a mark stands for nothing.
    """
    payload = unmasked_payload(job.payload, stored, options.rules(above) or job.options.metadata.redact)
    if payload is not job.payload:
        job = msgspec.structs.replace(job, payload=payload)
    target, before = job.options.policy.target, options.policy.target
    if not isinstance(target, WorkflowTarget) or not any(has_mark(node["payload"]) for node in target.nodes):
        return job
    known = {node["name"]: node for node in before.nodes} if isinstance(before, WorkflowTarget) else {}
    nodes = tuple(_unmasked_node(node, known.get(node["name"]), above) for node in target.nodes)
    return msgspec.structs.replace(job, options=job.options.but(target=msgspec.structs.replace(target, nodes=nodes)))


def unmasked_payload(payload: str, stored: str | None, rules: Sequence[str]) -> str:
    """Return a payload, as JSON text, with stored values in the place of marks. Raises InvalidPayload."""
    if not rules or not has_mark(payload):
        return payload
    before = None if stored is None else msgspec.json.decode(stored)
    return msgspec.json.encode(restored(msgspec.json.decode(payload), before, rules)).decode()


def _unmasked_node(
    node: Mapping[str, Any], known: Mapping[str, Any] | None, above: Sequence[str] | None
) -> Mapping[str, Any]:
    rules = read_plain((known or node).get("options") or {}).rules(above)
    stored = None if known is None else known["payload"]
    return {**node, "payload": unmasked_payload(node["payload"], stored, rules)}
