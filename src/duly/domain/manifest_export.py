"""Jobs as a file would ask for them: written so that a plan made from it finds no difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from duly.domain.duration import to_iso
from duly.domain.gate import told_concurrency, told_rate
from duly.domain.manifest_diff import Kept, told_of
from duly.domain.manifest_schedule import SHORT
from duly.domain.retry import Retry
from duly.domain.run import PRIORITY_DEFAULT, QUEUE_DEFAULT, is_marks_only, read_options, target_of
from duly.domain.target import Command, Container, Target, Webhook
from duly.domain.target_shapes import told_target

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
    told, usual = told_target(target), msgspec.structs.asdict(_USUAL[type(target)])
    return {name: value for name, value in told.items() if name == "type" or value != _listed(usual.get(name))}


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _options(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    options, default = read_options(text, None), Retry()
    tags = {"tags": list(options.tags) or None} | {name: _short(told) for name, told in told_of(options).items()}
    if is_marks_only(text):
        return tags
    retry = {
        "max_attempts": options.retry.max_attempts,
        "base": None if options.retry.base_seconds == default.base_seconds else _period(options.retry.base_seconds),
        "cap": None if options.retry.cap_seconds == default.cap_seconds else _period(options.retry.cap_seconds),
    }
    return {
        "retry": {key: value for key, value in retry.items() if value is not None},
        "timeout": None if options.timeout_seconds is None else _period(options.timeout_seconds),
        "concurrency": told_concurrency(options),
        "rate_limit": told_rate(options),
        **tags,
    }


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
