"""A file of schedules, read: what it asks for, job by job, or all that is wrong with it.

Names own jobs: a job is known by its name, and its file by its `source`. What only the database knows, such as whether a calendar
exists, is seen when a plan is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, TypeGuard, TypeVar

import msgspec

from duly.domain.errors import InvalidOption, Refused
from duly.domain.gathering import gather
from duly.domain.jobs.job import Recurring, Submission, check_name, check_tags, check_timeout
from duly.domain.jobs.manifest_schedule import read_schedule
from duly.domain.jobs.manifest_shapes import (
    CALENDARS_MAX,
    JOBS_MAX,
    DefaultsShape,
    JobShape,
    ManifestShape,
    NodeShape,
    RetryShape,
    WorkflowShape,
    WorkflowTargetShape,
)
from duly.domain.jobs.manifest_target import read_target
from duly.domain.jobs.manifest_workflow import read_nodes
from duly.domain.limits.concurrency import Rate, check_concurrency, check_rate
from duly.domain.problems import InvalidManifest, Path, Places, Problem, path_of
from duly.domain.runs import payload as payloads
from duly.domain.runs.callbacks import Callback, Then, read_callback
from duly.domain.runs.expiry import check_expires_after, check_expires_at
from duly.domain.runs.retry import Retry, retry_policy
from duly.domain.runs.run import Options, encode_options, said, target_of, then_of
from duly.domain.targets.target import WORKFLOW, Allowed, Target, type_of
from duly.domain.triggers.calendars import read_calendar
from duly.domain.triggers.errors import TriggerError, shown
from duly.domain.workflows.target import target_for
from duly.domain.workflows.workflow import Node, Workflow

OWNER = "file"
T = TypeVar("T")


class Wanted(msgspec.Struct, frozen=True):
    """A job as a file asks for it. Unless the file says whether it is paused, that is not the file's business."""

    job: Recurring
    is_paused: bool | None = None


class Manifest(msgspec.Struct, frozen=True):
    """What a file asks for, by name. `places` tell where, and `name` what the file is called."""

    source: str
    jobs: Mapping[str, Wanted]
    calendars: Mapping[str, Mapping[str, Any]] = {}
    places: Places = {}
    name: str = "manifest"

    def check_allowed(self, allowed: Allowed) -> None:
        """Refuse programs, images and webhooks that are not allowed here. Raises InvalidManifest, naming each job."""
        problems: list[Problem] = []
        for name, wanted in self.jobs.items():
            _attempt(("jobs", name, "target"), problems, allowed.check, target_of(wanted.job.options))
            _attempt(("jobs", name), problems, allowed.check_told, then_of(wanted.job.options))
        if problems:
            raise self.refused(problems)

    def refused(self, problems: list[Problem]) -> InvalidManifest:
        """Make an error of problems, each with its place."""
        return InvalidManifest([problem.placed(self.places) for problem in problems], self.name)


def read_manifest(value: object, places: Places | None = None, name: str = "manifest") -> Manifest:
    """Read a file of schedules from plain values. Raises InvalidManifest, which carries all that is wrong."""
    problems: list[Problem] = []
    shape = gather(ManifestShape, _filled(value), (), problems, raw=("jobs", "calendars"))
    if shape is None:
        given = value if isinstance(value, Mapping) else {}
        shape = ManifestShape(source="", jobs=given.get("jobs") or {}, calendars=given.get("calendars") or {})
    else:
        _attempt(("source",), problems, check_name, shape.source, "source")
    calendars = _calendars(shape.calendars, problems)
    jobs = _jobs(shape, problems)
    manifest = Manifest(shape.source, jobs, calendars, places or {}, name)
    if problems:
        raise manifest.refused(problems)
    return manifest


def read_workflow(
    value: object,
    places: Places | None = None,
    name: str = "workflow",
    check: Callable[[Node], Iterable[Problem]] | None = None,
) -> Workflow:
    """Read a workflow in a file of its own from plain values; `check` says what else is wrong with a node.

    Raises InvalidManifest, which carries all that is wrong.
    """
    problems: list[Problem] = []
    shape = gather(WorkflowShape, value, (), problems, raw=("nodes", "on_done", "on_dead"))
    given = value.get("nodes") if isinstance(value, Mapping) and shape is None else shape and shape.nodes
    nodes = read_nodes(given, (), problems, partial(_node, DefaultsShape()))
    problems += [problem for node in nodes for problem in (check(node) if check else ())]
    tags, told = None, list[Callback | None]()
    if shape is not None:
        _attempt(("name",), problems, check_name, shape.name, "name")
        tags = _attempt(("tags",), problems, check_tags, shape.tags or ())
        told = [
            _attempt((word,), problems, read_callback, word, getattr(shape, word)) for word in ("on_done", "on_dead")
        ]
    if problems or shape is None:
        raise InvalidManifest([problem.placed(places or {}) for problem in problems], name)
    then = Then(*told)
    return Workflow(shape.name, nodes, tags or (), None if then == Then() else then)


def _filled(value: object) -> object:
    """Take a part that was left empty, as `jobs:` is when its last job is taken out, for one that holds nothing."""
    if not isinstance(value, Mapping):
        return value
    return {
        key: {} if part is None and key in ("jobs", "calendars", "defaults") else part for key, part in value.items()
    }


def _calendars(given: object, problems: list[Problem]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for name, definition in _entries(given, "calendars", CALENDARS_MAX, problems):
        path: Path = ("calendars", name)
        if not isinstance(definition, Mapping):
            problems.append(Problem(path, f"{shown(definition)} is not a mapping with keys such as dates"))
        elif "name" in definition:
            problems.append(Problem((*path, "name"), "a calendar's name is the key above it; take this line out"))
        else:
            found[name] = {"name": name} | {key: part for key, part in definition.items() if part is not None}
            _attempt(path, problems, check_name, name, "calendar")
            _attempt(path, problems, read_calendar, found[name])
    return found


def _jobs(shape: ManifestShape, problems: list[Problem]) -> dict[str, Wanted]:
    found: dict[str, Wanted] = {}
    for name, given in _entries(shape.jobs, "jobs", JOBS_MAX, problems):
        path: Path = ("jobs", name)
        job = gather(JobShape, given, path, problems, raw=("schedule", "target", "on_done", "on_dead"))
        if job is None:
            if isinstance(given, Mapping):  # So that all is said at once.
                _read_rest(given, shape.defaults.tz, path, problems)
        elif (wanted := _wanted(name, job, shape, problems)) is not None:
            found[name] = wanted
    return found


def _read_rest(given: Mapping[str, Any], tz: str | None, path: Path, problems: list[Problem]) -> None:
    """Say what else is wrong with a job that cannot be read."""
    if given.get("target") is not None and not _is_workflow(given["target"]):
        read_target(given["target"], (*path, "target"), problems)
    if given.get("schedule") is not None:
        read_schedule(given["schedule"], tz, (*path, "schedule"), problems)


def _entries(given: object, key: str, most: int, problems: list[Problem]) -> list[tuple[str, Any]]:
    if not isinstance(given, Mapping):
        problems.append(Problem((key,), f"{shown(given)} is not a mapping of names"))
    elif len(given) > most:
        problems.append(
            Problem((key,), f"there are {len(given)}; the limit is {most} a file. Split it, each with its source")
        )
    else:
        return list(given.items())
    return []


def _wanted(name: str, job: JobShape, shape: ManifestShape, problems: list[Problem]) -> Wanted | None:
    path: Path = ("jobs", name)
    defaults, before = shape.defaults, len(problems)
    handler, target = _target(name, job, defaults, (*path, "target"), problems)
    queue = defaults.queue if job.queue is None else job.queue
    schedule = read_schedule(job.schedule, defaults.tz, (*path, "schedule"), problems)
    payload = _attempt((*path, "payload"), problems, payloads.encode, job.payload or {}, "payload")
    options = _options(job, target, defaults, path, problems)
    for text, what, key in ((name, "name", ()), (queue, "queue", ("queue",))):
        _attempt((*path, *key), problems, check_name, text, what)
    if len(problems) > before or schedule is None or payload is None:
        return None
    priority = defaults.priority if job.priority is None else job.priority
    recurring = Recurring(handler, payload, queue, priority, schedule, name, options, OWNER, shape.source)
    return Wanted(recurring, job.paused)


def _target(
    name: str, job: JobShape, defaults: DefaultsShape, path: Path, problems: list[Problem]
) -> tuple[str, Target | None]:
    """Read what a job runs. A workflow without a name of its own has that of its job, and always its tags."""
    given: object = job.target
    if not _is_workflow(given):
        return read_target(given, path, problems)
    before, part = len(problems), {key: value for key, value in given.items() if key != "type"}
    shape = gather(WorkflowTargetShape, part, path, problems, raw=("nodes",))
    nodes = read_nodes(part.get("nodes"), path, problems, partial(_node, defaults))
    if job.payload:
        problems.append(Problem((*path[:-1], "payload"), "a job that starts a workflow has none; give it to its nodes"))
    if len(problems) > before or shape is None:
        return "", None
    tags = tuple(dict.fromkeys(job.tags if job.tags is not None else defaults.tags or ()))
    target = _attempt(path, problems, target_for, Workflow(shape.name or name, nodes, tags))
    return WORKFLOW, target


def _is_workflow(given: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(given, Mapping) and given.get("type") == type_of(WORKFLOW)


def _node(defaults: DefaultsShape, node: NodeShape, path: Path, problems: list[Problem]) -> Submission | None:
    """Read a node as a job. Who is told of ends is said for the workflow as a whole, and tags for each node."""
    before, own = len(problems), msgspec.structs.replace(defaults, tags=None, on_done=None, on_dead=None)
    shared = set(NodeShape.__struct_fields__) & set(JobShape.__struct_fields__)
    job = JobShape(schedule="", **{name: getattr(node, name) for name in shared})
    handler, target = read_target(job.target, (*path, "target"), problems)
    queue = own.queue if job.queue is None else job.queue
    payload = _attempt((*path, "payload"), problems, payloads.encode, job.payload or {}, "payload")
    until = None if node.expires_at is None else _attempt((*path, "expires_at"), problems, _expires_at, node.expires_at)
    options = _options(job, target, own, path, problems, until)
    _attempt((*path, "queue"), problems, check_name, queue, "queue")
    if len(problems) > before or payload is None:
        return None
    return Submission(handler, payload, queue, own.priority if job.priority is None else job.priority, options=options)


def _expires_at(given: str) -> float:
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise InvalidOption(f"expires_at {shown(given)} is not a moment; write 2026-11-02T09:00:00Z") from None
    return check_expires_at(moment)


def _options(
    job: JobShape,
    target: Target | None,
    defaults: DefaultsShape,
    path: Path,
    problems: list[Problem],
    expires_at: float | None = None,
) -> str | None:
    """Write what its runs carry; nothing when nothing is said, which leaves it to the handler."""
    retry, changes = job.retry or defaults.retry, dict[str, Any]()
    if target is not None:
        changes["target"] = target
    timeout = defaults.timeout if job.timeout is msgspec.UNSET else job.timeout
    if retry is not None:
        changes["retry"] = _attempt((*path, "retry"), problems, _retry, retry)
    if timeout is not msgspec.UNSET:
        changes["timeout_seconds"] = _attempt((*path, "timeout"), problems, check_timeout, timeout)
    if (gate := job.concurrency) is not None:
        asked = (gate.key, gate.limit, gate.order)
        changes |= _attempt((*path, "concurrency"), problems, check_concurrency, *asked) or {}
    if (rate := job.rate_limit) is not None:
        chosen = Rate(rate.key, rate.limit, rate.per, rate.burst)
        changes["rate"] = _attempt((*path, "rate_limit"), problems, check_rate, chosen)
    given = defaults.tags if job.tags is None else job.tags
    tags = _attempt((*path, "tags"), problems, check_tags, given or ())
    then = Then(*(_callback(word, job, defaults, path, problems) for word in ("on_done", "on_dead")))
    marks: dict[str, Any] = {"tags": tags or (), "then": None if then == Then() else then, "expires_at": expires_at}
    if job.expires_after is not None:
        marks["expires_seconds"] = _attempt((*path, "expires_after"), problems, check_expires_after, job.expires_after)
    text = encode_options(Options(**changes, **marks))  # None among them was refused; then nothing comes of it.
    return said(text) if changes else text


def _retry(shape: RetryShape) -> Retry:
    said = {name: getattr(shape, name) for name in ("policy", "jitter", "delays", "max_age")}
    rules = [msgspec.structs.asdict(rule) for rule in shape.rules]
    return retry_policy(shape.max_attempts, shape.base, shape.cap, **said, rules=rules)


def _callback(
    word: str, job: JobShape, defaults: DefaultsShape, path: Path, problems: list[Problem]
) -> Callback | None:
    given = getattr(job, word)
    given = getattr(defaults, word) if given is None else given
    return _attempt((*path, word), problems, read_callback, word, given)


def _attempt(path: Path, problems: list[Problem], read: Callable[..., T], *arguments: Any) -> T | None:
    try:
        return read(*arguments)
    except TriggerError as error:
        problems.extend(Problem((*path, *path_of(one.field)), one.message) for one in error.errors)
    except Refused as error:
        problems.append(Problem(path, str(error)))
    return None
