"""Apply: bring the jobs and rules of a file to its definitions, in one transaction.

Applies of one tenant wait for each other in the database, so the second sees what the first has done. Every change
names the version that was read, so a conflict with another change is noticed, and the whole is planned again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import msgspec

from duly.clock import Rng
from duly.domain.errors import (
    InvalidOption,
    InvalidPayload,
    InvalidSchedule,
    KeyBusy,
    NameTaken,
    NotFound,
    Refused,
    Unsettled,
    VersionChanged,
)
from duly.domain.jobs.job import check_overlap
from duly.domain.jobs.manifest import RULES, Manifest
from duly.domain.jobs.manifest_diff import Kept
from duly.domain.jobs.manifest_plan import Pausing, Plan, PlanChanged, Step, StepKind, make_plan
from duly.domain.jobs.unmasked import unmasked
from duly.domain.problems import Problem, path_of
from duly.domain.runs.options import NO_OPTIONS
from duly.domain.tenancy.audit import Action, Subject
from duly.domain.triggers.calendars import Calendar
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.schedule.timing import calendars_in, is_closed, read_calendars, timing_of
from duly.moves.admin.audit import record
from duly.moves.admin.notifications import drop_rule, put_rule
from duly.moves.admin.seal import sealed
from duly.moves.cancel import cancel_job
from duly.moves.schedules.calendars import put_calendar
from duly.moves.schedules.edit import edit_version
from duly.moves.schedules.pause import pause, resume
from duly.moves.submit import submit_recurring
from duly.store.connection.database import Database, Unavailable
from duly.store.connection.together import together
from duly.store.tables import applied as store
from duly.store.tables import declared, jobs, notifications, schedules

_LOOKS_MAX = 10
_MOVED_ON = (NameTaken, VersionChanged, NotFound, KeyBusy, Unsettled)
_OF_THE_JOB = (TriggerError, InvalidOption, InvalidSchedule, InvalidPayload)
# A trigger is checked before its job has an id; only `H` depends on it, and any id will do.
_NO_JOB = str(UUID(int=0))


class Done(msgspec.Struct, frozen=True):
    """The action on one job."""

    name: str
    kind: StepKind
    job_id: UUID
    pausing: Pausing | None = None


class Applied(msgspec.Struct, frozen=True):
    """The actions of an apply, and the orphans: jobs and rules that it left though the file names them no more."""

    plan: Plan
    done: tuple[Done, ...]
    calendars: tuple[str, ...]
    orphans: tuple[str, ...]
    rules: tuple[str, ...]
    orphan_rules: tuple[str, ...]


async def plan(database: Database, tenant: int, manifest: Manifest) -> Plan:
    """Plan the apply of a file. Raises InvalidManifest for jobs that cannot be stored."""
    found, _, _ = await _look(database, tenant, manifest)
    return found


async def apply(
    database: Database,
    tenant: int,
    manifest: Manifest,
    rng: Rng,
    *,
    prune: bool = False,
    adopt: bool = False,
    expected: str | None = None,
    by: str | None = None,
) -> Applied:
    """Apply a file in one transaction. With `expected`, only if the plan has that digest. `by` is recorded.

    Raises InvalidManifest, NotTheFiles, PlanChanged, Refused, Unsettled; nothing has been changed then.
    """

    async def apply_once(inside: Database) -> Applied:
        unrecorded = inside.acting_as(None)  # the whole is recorded once, and not each step
        created = await _apply(unrecorded, tenant, manifest, rng, prune=prune, adopt=adopt, expected=expected, by=by)
        await _record(inside, tenant, manifest.source, created)
        return created

    for _ in range(_LOOKS_MAX):
        try:
            return await together(database, apply_once)
        except _MOVED_ON:  # one of the jobs has changed since it was read: all is undone, and planned again
            continue
        except Unavailable as error:
            if database.in_transaction:  # the opener of the transaction knows whether it may be run again
                raise
            raise Unavailable(f"{error}. Nothing of the file was applied: apply it again") from error
    raise Unsettled(f"a job of {manifest.source!r}")


async def _record(database: Database, tenant: int, source: str, created: Applied) -> None:
    counts = {kind: sum(done.kind is kind for done in created.done) for kind in StepKind}
    reported = {kind.value: count for kind, count in counts.items() if count}
    subject = Subject("file", source, source)
    changes = len(created.done) + len(created.calendars) + len(created.rules)
    calendars, rules = len(created.calendars) or None, len(created.rules) or None
    await record(database, tenant, Action.FILE_APPLIED, subject, changes, **reported, calendars=calendars, rules=rules)


async def _apply(
    database: Database,
    tenant: int,
    manifest: Manifest,
    rng: Rng,
    *,
    prune: bool,
    adopt: bool,
    expected: str | None,
    by: str | None,
) -> Applied:
    await store.lock(database, tenant)
    found, versions, manifest = await _look(database, tenant, manifest)
    if expected is not None and found.digest != expected:
        raise PlanChanged("the plan is out of date: make a new plan, and apply that")
    found.check(adopt=adopt)
    for calendar in found.calendars:
        await _put_calendar(database, tenant, manifest, calendar.name)
    # First the steps that block no other; those that lock the next fire of a schedule come last.
    created = [await _create(database, tenant, manifest, step, rng) for step in found.of(StepKind.CREATE)]
    changed = [await _change(database, manifest, step) for step in found.of(StepKind.CHANGE, StepKind.ADOPT)]
    orphans = found.of(StepKind.REMOVE)
    removed = [await _remove(database, step) for step in orphans] if prune else []
    versions |= {done.job_id: version for done, version in [*created, *changed]}
    rules = await _apply_rules(database, tenant, manifest, found, prune=prune)
    await store.mark_applied(database, tenant, manifest.source, versions, by)
    await store.mark_taken_out(database, tenant, [done.job_id for done in removed])
    left = () if prune else tuple(step.name for step in orphans)
    calendars = tuple(step.name for step in found.calendars)
    left_rules = () if prune else tuple(step.name for step in found.rules_of(StepKind.REMOVE))
    done = (*(done for done, _ in [*created, *changed]), *removed)
    return Applied(found, done, calendars, left, rules, left_rules)


async def _look(database: Database, tenant: int, manifest: Manifest) -> tuple[Plan, dict[UUID, int], Manifest]:
    """Make a plan; and return the versions of jobs that already are as the file says, by another's change.

    The file comes with its secrets sealed. So do the stored jobs, so that they are compared without opening them.
    """
    standing = await store.standing(database, tenant, manifest.source, list(manifest.jobs))
    manifest = _sealed(database, tenant, manifest, standing)
    kept = await schedules.calendars(database, tenant, None)
    rules = await notifications.ruled(database, tenant, manifest.source, list(manifest.rules))
    found = make_plan(manifest, standing, kept, await declared.live(database, tenant), rules)
    await _check_rules(database, tenant, manifest, found)
    calendars = read_calendars({**kept, **manifest.calendars})
    least = await jobs.least_period(database, tenant)
    _check(manifest, found, calendars, await database.read_clock(), least)
    steps = {step.name for step in found.steps}
    agreed = {
        job.job_id: job.version
        for name, job in standing.items()
        if name in manifest.jobs and name not in steps and job.version != job.applied
    }
    return found, agreed, manifest


def _sealed(database: Database, tenant: int, manifest: Manifest, standing: Mapping[str, Kept]) -> Manifest:
    """Seal the secrets of a file; masked ones are put back. Raises InvalidManifest."""
    jobs, problems = dict(manifest.jobs), list[Problem]()
    for name, wanted in manifest.jobs.items():
        kept = standing.get(name)
        try:
            job = unmasked(wanted.job, kept.payload, kept.options, kept.redact_above) if kept else unmasked(wanted.job)
            job = sealed(database, tenant, job, kept.options if kept else NO_OPTIONS)
        except (InvalidOption, InvalidPayload) as error:
            part = "target" if isinstance(error, InvalidOption) else "payload"
            problems.append(Problem(("jobs", name, part), str(error)))
            continue
        jobs[name] = msgspec.structs.replace(wanted, job=job)
    if problems:
        raise manifest.refused(problems)
    return msgspec.structs.replace(manifest, jobs=jobs)


def _check(
    manifest: Manifest, found: Plan, calendars: Mapping[str, Calendar], now: datetime, least_period: int | None
) -> None:
    """Refuse every schedule that cannot be stored, before any is. Raises InvalidManifest."""
    problems: list[Problem] = []
    for step in found.of(StepKind.CREATE, StepKind.CHANGE, StepKind.ADOPT):
        job = manifest.jobs[step.name].job
        try:
            check_overlap(job)
        except InvalidOption as error:
            problems.append(Problem(("jobs", step.name), str(error)))
        is_timed = step.job_id is None or any(one.field.startswith("schedule") for one in step.differences)
        shape = job.schedule
        if not is_timed or (is_closed(shape) and not calendars_in(shape) and least_period is None):
            continue
        try:
            job_id = str(step.job_id or _NO_JOB)
            timing_of(shape, job_id=job_id, now=now, calendars=calendars, least_period=least_period)
        except TriggerError as error:
            path = ("jobs", step.name, "schedule")
            problems.extend(Problem((*path, *path_of(one.field)), one.message) for one in error.errors)
    if problems:
        raise manifest.refused(problems)


async def _check_rules(database: Database, tenant: int, manifest: Manifest, found: Plan) -> None:
    """Refuse rules with channels that do not exist. Raises InvalidManifest."""
    steps = found.rules_of(StepKind.CREATE, StepKind.CHANGE, StepKind.ADOPT)
    known = {one.name for one in await notifications.channels(database, tenant)} if steps else set()
    problems = [
        Problem(
            (RULES, step.name, "channels", index),
            f"no channel is named {name!r}; `duly notify put-channel` creates one",
        )
        for step in steps
        for index, name in enumerate(manifest.rules[step.name].spec.channels)
        if name not in known
    ]
    if problems:
        raise manifest.refused(problems)


async def _apply_rules(
    database: Database, tenant: int, manifest: Manifest, found: Plan, *, prune: bool
) -> tuple[str, ...]:
    """Store the rules that differ, and delete those that the file no longer has. Returns their names."""
    removed = [step.name for step in found.rules_of(StepKind.REMOVE)] if prune else []
    for name in removed:
        await drop_rule(database, tenant, name)
    stored = [step.name for step in found.rules_of(StepKind.CREATE, StepKind.CHANGE, StepKind.ADOPT)]
    for name in stored:
        try:
            await put_rule(database, tenant, name, manifest.rules[name].spec)
        except InvalidOption as error:
            raise manifest.refused([Problem((RULES, name), str(error))]) from None
    if manifest.rules:
        await notifications.mark_applied(database, tenant, manifest.source, list(manifest.rules))
    return (*stored, *removed)


async def _put_calendar(database: Database, tenant: int, manifest: Manifest, name: str) -> None:
    try:
        await put_calendar(database, manifest.calendars[name], tenant)
    except TriggerError as error:
        raise manifest.refused([Problem(("calendars", name), one.message) for one in error.errors]) from None


async def _create(database: Database, tenant: int, manifest: Manifest, step: Step, rng: Rng) -> tuple[Done, int]:
    wanted = manifest.jobs[step.name]
    try:
        submitted = await submit_recurring(database, wanted.job, key=str(rng.uuid()), tenant=tenant)
    except _OF_THE_JOB as error:
        raise _of_job(manifest, step.name, error) from None
    pausing = Pausing.PAUSE if wanted.is_paused else None
    await _pause(database, submitted.job_id, pausing, manifest.source)
    return Done(step.name, step.kind, submitted.job_id, pausing), 1


async def _change(database: Database, manifest: Manifest, step: Step) -> tuple[Done, int]:
    assert step.job_id is not None
    assert step.version is not None
    version = step.version
    if step.differences:
        try:
            version = await edit_version(database, step.job_id, step.version, manifest.jobs[step.name].job)
        except _OF_THE_JOB as error:
            raise _of_job(manifest, step.name, error) from None
    await _pause(database, step.job_id, step.pausing, manifest.source)
    return Done(step.name, step.kind, step.job_id, step.pausing), version


async def _remove(database: Database, step: Step) -> Done:
    assert step.job_id is not None
    await cancel_job(database, step.job_id, "taken out of its file")
    return Done(step.name, step.kind, step.job_id)


async def _pause(database: Database, job_id: UUID, pausing: Pausing | None, source: str) -> None:
    if pausing is Pausing.PAUSE:
        await pause(database, job_id, f"paused in the file {source!r}")
    elif pausing is Pausing.RESUME:
        await resume(database, job_id)


def _of_job(manifest: Manifest, name: str, error: Refused) -> Refused:
    """Name the job that the store refused."""
    return manifest.refused([Problem(("jobs", name), str(error))])
