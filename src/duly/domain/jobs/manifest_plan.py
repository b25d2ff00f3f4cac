"""A plan: the steps of applying a file, job by job and rule by rule, with their reasons.

| the job of that name | step |
|---|---|
| does not exist, or has ended and was another one | create |
| is this file's, and differs | change; a drift when another has changed it since the last apply |
| is this file's, and no longer in the file | remove, with prune; else it is an orphan, and reported |
| was made by hand, by another file, or by code that no longer declares it | adopt, with adopt; else refused |
| is declared by a program that runs | refused |

A one-shot that has run, and is unchanged in the file, is left alone. Rules of notifications follow the same table; code
declares none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.errors import Refused
from duly.domain.jobs.declaration import OWNER as OWNER_CODE
from duly.domain.jobs.declaration import REMOVED
from duly.domain.jobs.manifest import OWNER, Manifest, Wanted
from duly.domain.jobs.manifest_diff import (
    Difference,
    Kept,
    KeptRule,
    calendar_differences,
    differences,
    rule_differences,
)
from duly.domain.notifications.rule import Rule


class StepKind(StrEnum):
    """The action on one name."""

    CREATE = "create"
    CHANGE = "change"
    ADOPT = "adopt"
    REMOVE = "remove"
    REFUSE = "refuse"


class Pausing(StrEnum):
    """The pause or resume that goes with a step."""

    PAUSE = "pause"
    RESUME = "resume"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The step for one name; `version` is the version seen, and `note` explains the unexpected."""

    name: str
    kind: StepKind
    job_id: UUID | None = None
    version: int | None = None
    differences: tuple[Difference, ...] = ()
    pausing: Pausing | None = None
    is_drift: bool = False
    note: str | None = None


class CalendarStep(msgspec.Struct, frozen=True):
    """A calendar to create or change. Calendars are never removed: other files may use them."""

    name: str
    kind: StepKind
    differences: tuple[Difference, ...] = ()


class RuleStep(msgspec.Struct, frozen=True, kw_only=True):
    """The step for a rule of notifications; `note` explains the unexpected."""

    name: str
    kind: StepKind
    differences: tuple[Difference, ...] = ()
    is_drift: bool = False
    note: str | None = None


class Plan(msgspec.Struct, frozen=True):
    """The steps of applying a file. The digest identifies the plan; `unchanged` are its jobs and rules without a step."""

    source: str
    steps: tuple[Step, ...]
    calendars: tuple[CalendarStep, ...]
    rules: tuple[RuleStep, ...]
    unchanged: int
    digest: str

    def of(self, *kinds: StepKind) -> list[Step]:
        """Return the steps of some kinds."""
        return [step for step in self.steps if step.kind in kinds]

    def rules_of(self, *kinds: StepKind) -> list[RuleStep]:
        """Return the steps for rules of some kinds."""
        return [step for step in self.rules if step.kind in kinds]

    @property
    def is_empty(self) -> bool:
        """Return whether nothing differs from the file."""
        return not self.steps and not self.calendars and not self.rules

    def check(self, *, adopt: bool) -> None:
        """Refuse a plan that would take jobs or rules of others. Raises NotTheFiles, naming each."""
        kinds = (StepKind.REFUSE,) if adopt else (StepKind.REFUSE, StepKind.ADOPT)
        refused = [f"job {step.name!r} {step.note}" for step in self.of(*kinds)]
        refused += [f"rule {step.name!r} {step.note}" for step in self.rules_of(*kinds)]
        if refused:
            raise NotTheFiles(refused)


class NotTheFiles(Refused):
    """A name in the file belongs to a job or a rule that the file may not take."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("\n".join(reasons[:50]))


class PlanChanged(Refused):
    """The plan is no longer the one that was reviewed."""


def make_plan(
    manifest: Manifest,
    standing: Mapping[str, Kept],
    calendars: Mapping[str, Mapping[str, Any]],
    declared: Collection[str],
    rules: Mapping[str, KeptRule],
) -> Plan:
    """Compare a file with the stored jobs and rules. `declared` are the names that running programs declare."""
    steps = [
        step
        for name in sorted({*manifest.jobs, *standing})
        if (step := decide(name, manifest.jobs.get(name), standing.get(name), manifest.source, name in declared))
    ]
    kept = [part for name in sorted(manifest.calendars) if (part := _calendar(name, manifest, calendars.get(name)))]
    ruled = [
        one
        for name in sorted({*manifest.rules, *rules})
        if (one := decide_rule(name, manifest.rules.get(name), rules.get(name), manifest.source))
    ]
    changed = len({step.name for step in steps} & set(manifest.jobs))
    changed += len({step.name for step in ruled} & set(manifest.rules))
    unchanged = len(manifest.jobs) + len(manifest.rules) - changed
    digest = _digest(manifest, steps, kept, ruled)
    return Plan(manifest.source, tuple(steps), tuple(kept), tuple(ruled), unchanged, digest)


def decide(name: str, wanted: Wanted | None, kept: Kept | None, source: str, is_declared: bool) -> Step | None:
    """Decide the step for one name; None when it is as in the file."""
    if wanted is None:
        return _removal(kept, source)
    if kept is None:
        return Step(name=name, kind=StepKind.CREATE)
    found = differences(kept, wanted.job)
    if kept.is_over:
        return _renewal(kept, found)
    seen: dict[str, Any] = {"name": name, "job_id": kept.job_id, "version": kept.version, "differences": found}
    if kept.owner == OWNER and kept.source == source:
        pausing, is_drift = _pausing(kept, wanted), bool(found) and kept.version != kept.applied
        if not found and pausing is None:
            return None
        note = f"changed since it was applied: version {kept.version}, applied {kept.applied}" if is_drift else None
        return Step(**seen, kind=StepKind.CHANGE, pausing=pausing, is_drift=is_drift, note=note)
    if kept.owner == OWNER_CODE and is_declared:
        note = (
            f"is declared in {kept.source}, which is running; remove the schedule from its decorator or from the file"
        )
        return Step(**seen, kind=StepKind.REFUSE, note=note)
    note = f"{_owner_text(kept)}; adopt it with --adopt, or choose another name"
    return Step(**seen, kind=StepKind.ADOPT, pausing=_pausing(kept, wanted), note=note)


def decide_rule(name: str, wanted: Rule | None, kept: KeptRule | None, source: str) -> RuleStep | None:
    """Decide the step for a rule; None when it is as in the file."""
    if kept is None:
        return RuleStep(name=name, kind=StepKind.CREATE)
    is_drift = kept.source == source and kept.is_drifted
    if wanted is None:
        if kept.source != source:
            return None
        note = "the file no longer has it" + ("; changed since it was applied" if is_drift else "")
        return RuleStep(name=name, kind=StepKind.REMOVE, is_drift=is_drift, note=note)
    found = rule_differences(kept.definition, wanted.definition)
    if kept.source != source:
        owner = "was created by hand" if kept.source is None else f"belongs to the file {kept.source!r}"
        note = f"{owner}; adopt it with --adopt, or choose another name"
        return RuleStep(name=name, kind=StepKind.ADOPT, differences=found, note=note)
    if not found:
        return None
    drifted = "changed since it was applied" if is_drift else None
    return RuleStep(name=name, kind=StepKind.CHANGE, differences=found, is_drift=is_drift, note=drifted)


def _removal(kept: Kept | None, source: str) -> Step | None:
    if kept is None or kept.is_over or kept.owner != OWNER or kept.source != source:
        return None
    is_drift = kept.version != kept.applied
    note = "the file no longer has it" + ("; changed since it was applied" if is_drift else "")
    return Step(
        name=kept.name, kind=StepKind.REMOVE, job_id=kept.job_id, version=kept.version, is_drift=is_drift, note=note
    )


def _renewal(kept: Kept, found: tuple[Difference, ...]) -> Step | None:
    """Decide the step for a job of this file that has ended."""
    if kept.state == "completed":
        return Step(name=kept.name, kind=StepKind.CREATE, note="the previous one has run") if found else None
    was_cancelled = kept.applied is not None
    note = "cancelled since it was applied; created again" if was_cancelled else None
    return Step(name=kept.name, kind=StepKind.CREATE, is_drift=was_cancelled, note=note)


def _pausing(kept: Kept, wanted: Wanted) -> Pausing | None:
    if wanted.is_paused is None:  # A pause that was caused by the removal of its code has no reason left.
        return Pausing.RESUME if kept.owner == OWNER_CODE and kept.pause_reason == REMOVED else None
    if wanted.is_paused == kept.is_paused:
        return None
    return Pausing.PAUSE if wanted.is_paused else Pausing.RESUME


def _owner_text(kept: Kept) -> str:
    if kept.owner == OWNER:
        return f"belongs to the file {kept.source!r}"
    return (
        f"was declared in {kept.source}, and no running worker declares it"
        if kept.owner == OWNER_CODE
        else "was created by hand"
    )


def _calendar(name: str, manifest: Manifest, kept: Mapping[str, Any] | None) -> CalendarStep | None:
    if kept is None:
        return CalendarStep(name, StepKind.CREATE)
    found = calendar_differences(kept, manifest.calendars[name])
    return CalendarStep(name, StepKind.CHANGE, found) if found else None


def _digest(
    manifest: Manifest, steps: Sequence[Step], calendars: Sequence[CalendarStep], rules: Sequence[RuleStep]
) -> str:
    named = [step.name for step in steps if step.name in manifest.jobs]
    jobs = [(manifest.jobs[name].job.digest().hex(), manifest.jobs[name].is_paused) for name in named]
    bodies = [manifest.calendars[step.name] for step in calendars]
    ruled = [manifest.rules[step.name].definition for step in rules if step.name in manifest.rules]
    text = msgspec.json.encode([manifest.source, steps, calendars, jobs, bodies, rules, ruled], order="deterministic")
    return sha256(text).hexdigest()
