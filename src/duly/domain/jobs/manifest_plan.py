"""A plan: the steps of applying a file, job by job, with their reasons.

| the job of that name | step |
|---|---|
| does not exist, or has ended and was another one | create |
| is this file's, and differs | change; a drift when another has changed it since the last apply |
| is this file's, and no longer in the file | remove, with prune; else it is an orphan, and reported |
| was made by hand, by another file, or by code that no longer declares it | adopt, with adopt; else refused |
| is declared by a program that runs | refused |

A one-shot that has run, and is unchanged in the file, is left alone.
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
from duly.domain.jobs.manifest_diff import Difference, Kept, calendar_differences, differences


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


class Plan(msgspec.Struct, frozen=True):
    """The steps of applying a file. The digest identifies the plan."""

    source: str
    steps: tuple[Step, ...]
    calendars: tuple[CalendarStep, ...]
    unchanged: int
    digest: str

    def of(self, *kinds: StepKind) -> list[Step]:
        """Return the steps of some kinds."""
        return [step for step in self.steps if step.kind in kinds]

    @property
    def is_empty(self) -> bool:
        """Return whether nothing differs from the file."""
        return not self.steps and not self.calendars

    def check(self, *, adopt: bool) -> None:
        """Refuse a plan that would take jobs of others. Raises NotTheFiles, naming each job."""
        refused = self.of(StepKind.REFUSE) if adopt else self.of(StepKind.REFUSE, StepKind.ADOPT)
        if refused:
            raise NotTheFiles([f"job {step.name!r} {step.note}" for step in refused])


class NotTheFiles(Refused):
    """A name in the file belongs to a job that the file may not take."""

    def __init__(self, reasons: Sequence[str]) -> None:
        super().__init__("\n".join(reasons[:50]))


class PlanChanged(Refused):
    """The plan is no longer the one that was reviewed."""


def make_plan(
    manifest: Manifest,
    standing: Mapping[str, Kept],
    calendars: Mapping[str, Mapping[str, Any]],
    declared: Collection[str],
) -> Plan:
    """Compare a file with the stored jobs. `declared` are the names that running programs declare."""
    steps = [
        step
        for name in sorted({*manifest.jobs, *standing})
        if (step := decide(name, manifest.jobs.get(name), standing.get(name), manifest.source, name in declared))
    ]
    kept = [one for name in sorted(manifest.calendars) if (one := _calendar(name, manifest, calendars.get(name)))]
    named = len({step.name for step in steps} & set(manifest.jobs))
    digest = _digest(manifest, steps, kept)
    return Plan(manifest.source, tuple(steps), tuple(kept), len(manifest.jobs) - named, digest)


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


def _digest(manifest: Manifest, steps: Sequence[Step], calendars: Sequence[CalendarStep]) -> str:
    named = [step.name for step in steps if step.name in manifest.jobs]
    jobs = [(manifest.jobs[name].job.digest().hex(), manifest.jobs[name].is_paused) for name in named]
    bodies = [manifest.calendars[step.name] for step in calendars]
    text = msgspec.json.encode([manifest.source, steps, calendars, jobs, bodies], order="deterministic")
    return sha256(text).hexdigest()
