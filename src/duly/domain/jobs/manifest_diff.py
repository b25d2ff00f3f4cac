"""Differences between a stored job and its file, field by field.

Equivalent spellings are equal: `PT5M` and `PT300S`, a default given and one left out. Schedules are compared as
requested, not as compiled, so `tomorrow at 9am` is the same schedule the day after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from duly.domain.duration import to_iso
from duly.domain.jobs.job import Recurring, StandingJob
from duly.domain.jobs.spec_of import rules_of
from duly.domain.redaction import redacted, redacted_pair
from duly.domain.runs.callbacks import Callbacks
from duly.domain.runs.options import RunOptions
from duly.domain.targets.masking import HIDDEN, is_secret, masked_node
from duly.domain.targets.target import Target, WorkflowTarget
from duly.domain.triggers.compiled import Compiled
from duly.domain.triggers.elapsed import FixedDelay, FixedRate
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.interval import parse_every
from duly.domain.triggers.moments import second_of, utc_text
from duly.domain.triggers.on_event import ON_EVENT, is_on_event
from duly.domain.triggers.schedule import options as asking
from duly.domain.workflows.target import plain_node

_MAPPINGS = ("headers", "environment")
_NODES = "target.nodes."
_SEALED_QUERY = "secrets in the query"  # the part of a URL that is not shown


class Kept(StandingJob, frozen=True):
    """A stored job that a file may ask for. `applied` is its version when its file was last applied."""

    applied: int | None
    handler: str
    payload: str | None
    queue: str
    priority: int
    options: RunOptions
    schedule: str | None
    every_seconds: int | None
    anchor_at: datetime | None
    redact_above: list[str] | None = None  # rules of its tenant and of the installation

    @property
    def shape(self) -> dict[str, Any]:
        """The schedule as it was requested."""
        return asking.requested_shape(self.schedule, self.every_seconds)

    @property
    def definition(self) -> Recurring:
        """The job as it was requested."""
        routing = (self.queue, self.priority)
        return Recurring(self.handler, self.payload or "{}", *routing, self.shape, self.name, self.options)

    @property
    def anchor(self) -> str | None:
        """The moment from which a stored period counts, given or not."""
        if self.anchor_at is not None:
            return _utc(self.anchor_at)
        stored = {} if self.schedule is None else msgspec.json.decode(self.schedule)
        anchor: str | None = stored.get("trigger", {}).get("anchor")
        return anchor


class KeptRule(msgspec.Struct, frozen=True):
    """A stored rule of notifications that a file may ask for, in its normal form.

    `source` is the file that applied it, and `applied` what that was; a rule made by hand has neither.
    """

    definition: Mapping[str, Any]
    source: str | None
    applied: Mapping[str, Any] | None

    @property
    def is_drifted(self) -> bool:
        """Return whether it was changed since its file was applied."""
        return self.source is not None and self.applied != self.definition


class Difference(msgspec.Struct, frozen=True):
    """A field with its current and its requested value; None: not given."""

    field: str
    before: Any
    after: Any


def differences(kept: Kept, wanted: Recurring) -> tuple[Difference, ...]:
    """Return the differences of a job from its file; the secrets of both are sealed."""
    return compared(kept.definition, wanted, kept.anchor, kept.redact_above)


def compared(
    standing: Recurring, wanted: Recurring, anchor: str | None = None, above: Sequence[str] | None = None
) -> tuple[Difference, ...]:
    """Return the differences of two definitions, except names; `anchor` is the moment from which the current one
    counts, and `above` are rules of redaction besides theirs.
    """
    before, after = _parts(standing), _parts(wanted)
    if standing.schedule != wanted.schedule:
        was, will = _schedules(standing.schedule, wanted.schedule, anchor)
        before |= {key if key == ON_EVENT else f"schedule.{key}": value for key, value in was.items()}
        after |= {key if key == ON_EVENT else f"schedule.{key}": value for key, value in will.items()}
    return _changes(before, after, (*standing.options.rules(above), *wanted.options.metadata.redact))


def drift(applied: Kept, kept: Kept) -> tuple[Difference, ...]:
    """Return the differences of a job from what was applied: `before` is the file's, `after` the current."""
    return differences(applied, kept.definition)


def calendar_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the differences of a calendar from its file."""
    was, will = ({"tz": "UTC"} | _said(calendar) for calendar in (before, after))
    return _changes(was, will)


def rule_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Return the differences of a rule, in its normal form, from its file."""
    return _changes(before, after)


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], rules: Sequence[str] = ()) -> tuple[Difference, ...]:
    return tuple(
        Difference(field, *_shown_parts(field, before.get(field), after.get(field), rules))
        for field in {**before, **after}
        if before.get(field) != after.get(field)
    )


def _parts(job: Recurring) -> dict[str, Any]:
    """Return a job field by field as in its spec, without its schedule; its target part by part, with sealed secrets."""
    found: dict[str, Any] = {"queue": job.queue, "priority": job.priority, "payload": msgspec.json.decode(job.payload)}
    rules = rules_of(job.options)
    found |= {name: msgspec.to_builtins(rule) for name, rule in rules.items()} | {"tags": sorted(rules["tags"]) or None}
    return (
        found
        | _sealed_queries(job.options.metadata.callbacks or Callbacks())
        | _target_parts(job.handler, job.options.policy.target)
    )


def _sealed_queries(callbacks: Callbacks) -> dict[str, Any]:
    by_name = {"on_end": callbacks.end, "on_failure": callbacks.failure}
    return {
        f"{name}.url, {_SEALED_QUERY}": callback.sealed_url
        for name, callback in by_name.items()
        if callback is not None and callback.sealed_url is not None
    }


def _schedules(
    before: Mapping[str, Any], after: Mapping[str, Any], anchor: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    if is_on_event(before) or is_on_event(after):
        return _said(before), _said(after)
    try:
        was, will = _schedule(before), _schedule(after)
    except TriggerError:  # It can no longer be read, for instance because a zone was renamed: compare it literally.
        return _said(before), _said(after)
    _settle_anchors(was, will, anchor)
    return was, will


def _schedule(shape: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schedule part by part, normalized. Raises TriggerError."""
    known = asking.check(shape)
    return {
        "trigger": _trigger(shape["trigger"], known.trigger),
        "start": None if known.start is None else _utc(known.start),
        "end": None if known.end is None else _utc(known.end),
        "max_runs": known.max_runs,
        "jitter": msgspec.to_builtins(known.jitter),
        "misfire": msgspec.to_builtins(known.misfire),
        "overlap": msgspec.to_builtins(known.overlap),
        "calendars": [[use.calendar.name, use.mode, use.on_hit] for use in known.uses],
        "pause_on_failure": known.pause_on_failure,
    }


def _trigger(shape: Mapping[str, Any], known: Compiled | None = None) -> dict[str, Any]:
    found = _said(shape)
    if found.get("tz") == "UTC":
        del found["tz"]
    if found["type"] == "any":
        found["of"] = [_trigger(member) for member in found["of"]]
    if found["type"] == "interval":
        found["every"] = to_iso(parse_every(found["every"]))
        if found.get("mode") == "fixed_rate":
            del found["mode"]
        if "anchor" in found and isinstance(known, FixedRate | FixedDelay):
            found["anchor"] = utc_text(known.anchor)
    return found


def _settle_anchors(was: Mapping[str, Any], will: Mapping[str, Any], anchor: str | None) -> None:
    """Compare the anchors of two periods only where the file names one: otherwise a period goes on."""
    before, after = was.get("trigger", {}), will.get("trigger", {})
    if before.get("type") != "interval" or after.get("type") != "interval":
        return
    requested = before.pop("anchor", None)
    if "anchor" in after:
        # A `start` may put off the first fire of a delay.
        before["anchor"] = requested if "mode" in before else anchor


def _utc(moment: datetime) -> str:
    return utc_text(second_of(moment))


def _said(shape: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in shape.items() if value is not None and value != []}


def _target_parts(handler: str, target: Target | None) -> dict[str, Any]:
    """Return a target part by part, for comparison."""
    if target is None:
        return {"target": handler}
    found: dict[str, Any] = {"target": target.__struct_config__.tag}
    if isinstance(target, WorkflowTarget):
        nodes = {f"{_NODES}{node['name']}": plain_node(node) for node in target.nodes}
        return found | {"target.name": target.name} | nodes
    for name, value in msgspec.structs.asdict(target).items():
        if name == "sealed_url":
            found |= {} if value is None else {f"target.url, {_SEALED_QUERY}": value}
        elif name in _MAPPINGS:
            found |= {f"target.{name}.{key}": part for key, part in value.items()}
        elif value not in (None, ()):
            found[f"target.{name}"] = list(value) if isinstance(value, tuple) else value
    return found


def _shown_parts(field: str, before: Any, after: Any, rules: Sequence[str]) -> tuple[Any, Any]:
    """Return a part as stored and as requested, for display; of a secret, only that it differs."""
    if field == "payload":
        return redacted_pair(before, after, rules)
    if field.startswith(_NODES):
        return before and _shown_node(before, rules), after and _shown_node(after, rules)
    if not _is_secret_part(field):
        return before, after
    hidden = HIDDEN if before is None or after is None else f"{HIDDEN}, another value"
    return None if before is None else HIDDEN, None if after is None else hidden


def _shown_node(node: Mapping[str, Any], rules: Sequence[str]) -> Mapping[str, Any]:
    own = (node.get("options") or {}).get("redact") or ()
    payload = redacted(msgspec.json.decode(node["payload"]), (*own, *rules))
    return {**masked_node(node), "payload": msgspec.json.encode(payload).decode()}


def _is_secret_part(field: str) -> bool:
    is_value = field.startswith(tuple(f"target.{name}." for name in _MAPPINGS))
    return field.endswith(_SEALED_QUERY) or (is_value and is_secret(field.rpartition(".")[2]))
