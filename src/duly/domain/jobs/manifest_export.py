"""Export of jobs and rules as a file: a plan made from it finds no difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from duly.domain.fields import non_defaults
from duly.domain.jobs.manifest import RULES
from duly.domain.jobs.manifest_diff import Kept
from duly.domain.jobs.manifest_schedule import SHORT
from duly.domain.jobs.spec_of import spec_of
from duly.domain.notifications.rule import RuleSpec

# The one key of a callback that can stand alone.
_ALONE = {"jitter": "max", "misfire": "policy", "overlap": "policy"}


def export(
    source: str,
    jobs: Sequence[Kept],
    calendars: Mapping[str, Mapping[str, Any]],
    rules: Mapping[str, RuleSpec] | None = None,
) -> dict[str, Any]:
    """Return the file that asks for these jobs, the calendars they use, and these rules.

    Secrets are `***`, which keeps the stored values.
    """
    created = {job.name: _job(job) for job in jobs}
    used = {use["name"] for job in jobs for use in job.shape.get("calendars") or ()}
    kept = {
        name: {key: value for key, value in definition.items() if key != "name" and value is not None}
        for name, definition in calendars.items()
        if name in used
    }
    found = {"source": source} | ({"calendars": kept} if kept else {}) | {"jobs": created}
    return found | ({RULES: {name: non_defaults(spec) for name, spec in rules.items()}} if rules else {})


def _job(job: Kept) -> dict[str, Any]:
    spec = spec_of(job.definition, above=job.redact_above)
    fields = non_defaults(spec)
    if spec.retry is not None:  # Always name the attempts.
        fields["retry"] = {"max_attempts": spec.retry.max_attempts, **fields["retry"]}
    target, schedule = fields.pop("target"), fields.pop("schedule", None)
    del fields["name"]
    entry: dict[str, Any] = {"target": _target(target, job.name)}
    if schedule is not None:
        entry["schedule"] = _schedule(job, schedule)
    entry |= {name: _short(value) if name in ("on_end", "on_failure") else value for name, value in fields.items()}
    return entry | ({"paused": True} if job.is_paused else {})


def _target(target: dict[str, Any], name: str) -> str | dict[str, Any]:
    """Write a target: a function by its name alone, a workflow without the name that it shares with its job."""
    if target["type"] == "function":
        return str(target["handler"])
    return {key: value for key, value in target.items() if (key, value) != ("name", name)}


def _short(callback: dict[str, str]) -> dict[str, str] | str:
    """Write a callback as its one word, if it has nothing else."""
    return next(iter(callback.values())) if len(callback) == 1 else callback


def _schedule(job: Kept, schedule: Mapping[str, Any]) -> dict[str, Any]:
    shape = {key: value for key, value in schedule.items() if value is not None}
    trigger = {key: value for key, value in shape.pop("trigger").items() if value is not None}
    if trigger["type"] == "interval" and trigger.get("mode") != "fixed_delay" and "anchor" not in trigger:
        trigger["anchor"] = job.anchor  # So that it fires at the same moments elsewhere.
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
