"""A plan for people: a line for each job and rule with its step, and the fields that differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from duly.cli.render.job import submitted_target_text
from duly.domain.counting import some
from duly.domain.jobs.manifest import Manifest
from duly.domain.jobs.manifest_diff import Difference
from duly.domain.jobs.manifest_plan import CalendarStep, Pausing, Plan, RuleStep, Step, StepKind
from duly.domain.triggers.on_event import ON_EVENT, OnEvent
from duly.domain.triggers.schedule import options
from duly.domain.triggers.schedule.summary import sentence
from duly.wire.jobs.manifests import Applied
from duly.wire.queues import Worker

_SHOWN_MAX = 200
_NOTES_MAX = 10
_VALUE_CHARACTERS_MAX = 160
_MARKS = {
    StepKind.CREATE: "+",
    StepKind.CHANGE: "~",
    StepKind.ADOPT: "<",
    StepKind.REMOVE: "-",
    StepKind.REFUSE: "!",
}
_DONE = {
    StepKind.CREATE: "created",
    StepKind.CHANGE: "changed",
    StepKind.ADOPT: "adopted",
    StepKind.REMOVE: "cancelled",
}
_PAUSING = {Pausing.PAUSE: "pause it", Pausing.RESUME: "resume it"}


def plan_lines(plan: Plan, manifest: Manifest, *, prune: bool, adopt: bool) -> list[str]:
    """Write the steps of applying a file."""
    shown = [line for step in plan.steps[:_SHOWN_MAX] for line in _step(step, manifest, prune=prune, adopt=adopt)]
    more = [f"… and {len(plan.steps) - _SHOWN_MAX} more; --json shows all"] if len(plan.steps) > _SHOWN_MAX else []
    calendars = [line for calendar in plan.calendars for line in _calendar(calendar)]
    rules = [line for rule in plan.rules for line in _rule(rule, prune=prune, adopt=adopt)]
    return [*calendars, *shown, *more, *rules, f"{plan.source}: {_summary(plan, prune=prune)}"]


def plan_of(applied: Applied) -> Plan:
    """Return the plan in the API's response."""
    return msgspec.convert(msgspec.to_builtins(applied), Plan)


def applied_lines(applied: Applied) -> list[str]:
    """Write the result of an apply."""
    counts = [
        f"{len(names)} {word}"
        for kind, word in _DONE.items()
        if (names := [done.name for done in applied.done if done.kind == kind])
    ]
    calendars = [f"{some(len(applied.calendars), 'calendar')} kept"] if applied.calendars else []
    stored = sum(rule.kind != "remove" for rule in applied.rules)
    deleted = len(applied.rules) - stored - len(applied.orphan_rules)
    rules = [f"{some(count, 'rule')} {word}" for count, word in ((stored, "stored"), (deleted, "deleted")) if count]
    return [f"{applied.source}: {', '.join([*calendars, *counts, *rules]) or 'nothing was to be changed'}"]


def obstacle_lines(plan: Plan, manifest: Manifest, live: Sequence[Worker]) -> list[str]:
    """Describe the runs that no worker would run at this moment."""
    steps = plan.of(StepKind.CREATE, StepKind.CHANGE, StepKind.ADOPT)
    wanted = dict.fromkeys((job.handler, job.queue) for job in (manifest.jobs[step.name].job for step in steps))
    known = {(handler, queue) for row in live for handler in row.handlers for queue in row.queues}
    missing = [pair for pair in wanted if pair not in known]
    notes = [f"note  no live worker runs {handler} on queue {queue}" for handler, queue in missing[:_NOTES_MAX]]
    return notes if len(missing) <= _NOTES_MAX else [*notes, f"note  and {len(missing) - _NOTES_MAX} more"]


def _step(step: Step, manifest: Manifest, *, prune: bool, adopt: bool) -> Iterable[str]:
    yield f"{_MARKS[step.kind]} {step.name}{_becomes(step, manifest, prune=prune, adopt=adopt)}"
    yield from (f"    {difference_text(one)}" for one in step.differences)
    if step.pausing is not None:
        yield f"    {_PAUSING[step.pausing]}"


def _becomes(step: Step, manifest: Manifest, *, prune: bool, adopt: bool) -> str:
    drift = "   (drift)" if step.is_drift else ""
    match step.kind:
        case StepKind.CREATE:
            job = manifest.jobs[step.name].job
            words = f"{_when(job.schedule)}: {submitted_target_text(job)} on queue {job.queue}"
            return f"   {words}{f'   ({step.note})' if step.note else ''}{drift}"
        case StepKind.REMOVE:
            return f"   {step.note}: {'it is cancelled' if prune else 'it is kept; --prune cancels it'}{drift}"
        case StepKind.ADOPT if adopt:
            return f"   {(step.note or '').partition(';')[0]}; it is adopted"
    return f"   {step.note}{drift}" if step.note else ""


def _calendar(step: CalendarStep) -> Iterable[str]:
    yield f"{_MARKS[step.kind]} calendar {step.name}"
    yield from (f"    {difference_text(one)}" for one in step.differences)


def _rule(step: RuleStep, *, prune: bool, adopt: bool) -> Iterable[str]:
    drift = "   (drift)" if step.is_drift else ""
    note = f"   {step.note}" if step.note else ""
    if step.kind is StepKind.REMOVE:
        note = f"   {step.note}: {'it is deleted' if prune else 'it is kept; --prune deletes it'}"
    elif step.kind is StepKind.ADOPT and adopt:
        note = f"   {(step.note or '').partition(';')[0]}; it is adopted"
    yield f"{_MARKS[step.kind]} rule {step.name}{note}{drift}"
    yield from (f"    {difference_text(one)}" for one in step.differences)


def difference_text(one: Difference) -> str:
    """Write the old and the new value."""
    return f"{one.field}: {_value(one.before)} → {_value(one.after)}"


def _value(value: Any) -> str:
    text = "not said" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= _VALUE_CHARACTERS_MAX else text[:_VALUE_CHARACTERS_MAX] + "…"


def _summary(plan: Plan, *, prune: bool) -> str:
    words = {
        StepKind.CREATE: "to create",
        StepKind.CHANGE: "to change",
        StepKind.ADOPT: "not this file's",
        StepKind.REMOVE: "to cancel" if prune else "orphaned",
        StepKind.REFUSE: "declared in code",
    }
    counts = [f"{len(steps)} {word}" for kind, word in words.items() if (steps := plan.of(kind))]
    calendars = [f"{some(len(plan.calendars), 'calendar')} to save"] if plan.calendars else []
    rules = [
        f"{some(len(ruled), 'rule')} {words[kind].replace('cancel', 'delete')}"
        for kind in words
        if (ruled := plan.rules_of(kind))
    ]
    return ", ".join([*calendars, *counts, *rules, f"{plan.unchanged} as they are"])


def _when(shape: Mapping[str, Any]) -> str:
    """Return when a job fires."""
    match = shape.get(ON_EVENT)
    return sentence(options.check(shape)) if match is None else OnEvent(match["type"], match.get("source")).describe()
