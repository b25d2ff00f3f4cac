"""Reading of a file of schedules: the jobs and rules it asks for, or everything that is wrong with it.

Jobs are identified by name, and their file by its `source`. Facts that only the database has, such as whether a
calendar exists, are checked when a plan is made. Short forms are expanded first; then an entry is the spec of a job,
compiled as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from duly.domain.errors import InvalidWorkflow, Refused
from duly.domain.gathering import gather, gather_fields
from duly.domain.jobs.compile import compile_node, compile_recurring, compile_workflow
from duly.domain.jobs.job import Recurring, check_name
from duly.domain.jobs.manifest_schedule import expanded, kind_of, placed
from duly.domain.jobs.manifest_shapes import CALENDARS_MAX, JOBS_MAX, Defaults, JobEntry, ManifestSpec, WorkflowFile
from duly.domain.jobs.spec import JobSpec, NodeSpec, RetryPolicy
from duly.domain.notifications.rule import RULES_MAX, Rule, RuleSpec, read_rule
from duly.domain.problems import InvalidManifest, Path, Places, Problem
from duly.domain.runs.callbacks import short_callback
from duly.domain.targets.spec import FunctionTarget
from duly.domain.targets.target import FUNCTION, Allowed
from duly.domain.triggers.calendars import read_calendar
from duly.domain.triggers.errors import TriggerError, shown
from duly.domain.workflows.workflow import NODES_MAX, Node, Workflow, faults_in

OWNER = "file"
RULES = "notification_rules"
T = TypeVar("T")
# A stand-in for a target that cannot be read, so that the rest is checked.
_UNREAD = FunctionTarget(handler="unread")
_UNREAD_FIELDS = msgspec.to_builtins(_UNREAD)
_NOW = datetime(2000, 1, 1, tzinfo=UTC)  # stands in for the moment of a job that has none, which is refused
_OF_NODES = ("queue", "priority", "retry", "timeout")


class Wanted(msgspec.Struct, frozen=True):
    """A job as a file asks for it. If the file does not say whether it is paused, its pause is left as it is."""

    job: Recurring
    is_paused: bool | None = None


class Manifest(msgspec.Struct, frozen=True):
    """The jobs and rules that a file asks for, by name. `places` are their positions; `name` is the file's."""

    source: str
    jobs: Mapping[str, Wanted]
    calendars: Mapping[str, Mapping[str, Any]] = {}
    rules: Mapping[str, Rule] = {}
    places: Places = {}
    name: str = "manifest"

    def check_allowed(self, allowed: Allowed) -> None:
        """Refuse programs, images and webhooks that are not allowed here. Raises InvalidManifest, naming each job."""
        problems: list[Problem] = []
        for name, wanted in self.jobs.items():
            gathering = Gathering(("jobs", name), problems)
            gathering.part(("target",), allowed.check, wanted.job.options.policy.target)
            gathering.part((), allowed.check_callbacks_allowed, wanted.job.options.metadata.callbacks)
        if problems:
            raise self.refused(problems)

    def refused(self, problems: list[Problem]) -> InvalidManifest:
        """Make one error of problems, each with its position."""
        return InvalidManifest([problem.placed(self.places) for problem in problems], self.name)


class Gathering:
    """Reading that goes on after a refusal and gathers every problem with its path.

    `schedule` is the key of the file under which problems of the trigger are reported.
    """

    def __init__(
        self, path: Path, problems: list[Problem], schedule: str = "trigger", defaults: Mapping[str, Any] | None = None
    ) -> None:
        self._path = path
        self._problems = problems
        self._before = len(problems)
        self._schedule = schedule
        self._defaults = defaults or {}

    @property
    def is_sound(self) -> bool:
        """Return whether nothing has been refused so far."""
        return len(self._problems) == self._before

    def part(self, path: Path, read: Callable[..., T], *arguments: Any) -> T | None:
        """Read a part; None where it was refused."""
        whole = (*self._path, *path)
        try:
            return read(*arguments)
        except TriggerError as error:
            found = placed(self._schedule, error)
        except InvalidWorkflow as error:
            is_of_node = error.where[:2] == self._path[-2:]
            found = [(error.where[2:] if is_of_node else error.where, str(error))]
        except Refused as error:
            found = [((), str(error))]
        self._problems.extend(Problem((*whole, *place), message) for place, message in found)
        return None

    def nodes(self, path: Path, given: object) -> tuple[Node, ...]:
        """Read the nodes of the workflow at a path, gather their problems, and then check them against each other."""
        whole = (*self._path, *path)
        if not isinstance(given, Mapping) or not given:
            self._refuse(whole, f"{shown(given)} is not a mapping of names; give at least one node")
            return ()
        if len(given) > NODES_MAX:
            self._refuse(whole, f"{len(given)} nodes are too many; the limit is {NODES_MAX} per workflow")
            return ()
        nodes = [self._node(whole, str(name), part) for name, part in given.items()]
        found = tuple(node for node in nodes if node is not None)
        # Unreadable parts are assumed to be right, so that the other problems are reported too.
        unread = [str(name) for name, node in zip(given, nodes, strict=True) if node is None]
        self._problems.extend(Problem((*whole, *error.where), str(error)) for error in faults_in(found, unread))
        return found

    def _refuse(self, path: Path, message: str) -> None:
        self._problems.append(Problem((*path, "nodes"), message))

    def _node(self, path: Path, name: str, given: object) -> Node | None:
        place, before = (*path, "nodes", name), len(self._problems)
        part = _in_full(given, place, self._problems)
        spec = gather(NodeSpec, part, place, self._problems, raw=("depends_on", "map"))
        if spec is None or not isinstance(given, Mapping):
            return None
        node = compile_node(name, _with_defaults(spec, given, self._defaults), Gathering(place, self._problems))
        return node if len(self._problems) == before else None


def read_manifest(value: object, places: Places | None = None, name: str = "manifest") -> Manifest:
    """Read a file of schedules from plain values. Raises InvalidManifest, which carries every problem."""
    problems: list[Problem] = []
    given = _in_full(value, (), problems)
    found = gather_fields(ManifestSpec, given, (), problems, raw=("jobs", "calendars", "defaults", RULES))
    source = found.get("source", "")
    if source:
        Gathering(("source",), problems).part((), check_name, source, "source")
    calendars = _calendars(found.get("calendars", {}), problems)
    said = found.get("defaults", {})
    defaults = gather(Defaults, _in_full(said, ("defaults",), problems), ("defaults",), problems) or Defaults()
    jobs = _jobs(found.get("jobs", {}), source, said, defaults, problems)
    rules = _rules(found.get(RULES, {}), problems)
    manifest = Manifest(source, jobs, calendars, rules, places or {}, name)
    if problems:
        raise manifest.refused(problems)
    return manifest


def read_workflow(
    value: object,
    places: Places | None = None,
    name: str = "workflow",
    check: Callable[[Node], Iterable[Problem]] | None = None,
) -> Workflow:
    """Read a workflow in a file of its own from plain values; `check` finds further problems of a node.

    Raises InvalidManifest, which carries every problem.
    """
    problems: list[Problem] = []
    found = gather_fields(WorkflowFile, _in_full(value, (), problems), (), problems, raw=("nodes",))
    spec = WorkflowFile(**{"name": "unread", "nodes": {"unread": {"target": "unread"}}, **found})
    workflow = compile_workflow(spec, Gathering((), problems))
    problems += [problem for node in workflow.nodes for problem in (check(node) if check else ())]
    if problems:
        raise InvalidManifest([problem.placed(places or {}) for problem in problems], name)
    return workflow


def _calendars(given: object, problems: list[Problem]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for name, definition in _entries(given, "calendars", CALENDARS_MAX, problems):
        path: Path = ("calendars", name)
        if not isinstance(definition, Mapping):
            problems.append(Problem(path, f"{shown(definition)} is not a mapping with keys such as dates"))
        elif "name" in definition:
            problems.append(Problem((*path, "name"), "a calendar's name is the key above it; remove this line"))
        else:
            found[name] = {"name": name} | {key: part for key, part in definition.items() if part is not None}
            gathering = Gathering(path, problems)
            gathering.part((), check_name, name, "calendar")
            gathering.part((), read_calendar, found[name])
    return found


def _rules(given: object, problems: list[Problem]) -> dict[str, Rule]:
    found: dict[str, Rule] = {}
    for name, definition in _entries(given, RULES, RULES_MAX, problems):
        path: Path = (RULES, name)
        gathering = Gathering(path, problems)
        gathering.part((), check_name, name, "rule")
        spec = gather(RuleSpec, _in_full(definition, path, problems), path, problems)
        rule = None if spec is None else gathering.part((), read_rule, spec)
        if rule is not None:
            found[name] = rule
    return found


def _jobs(given: object, source: str, said: object, defaults: Defaults, problems: list[Problem]) -> dict[str, Wanted]:
    shared = {key: getattr(defaults, key) for key in Defaults.__struct_fields__ if key not in ("tz", "tags")}
    shared["tags"] = defaults.tags or []
    if isinstance(said, Mapping) and "timeout" in said:
        shared["retry"] = _own_policy(defaults)
    entries = [
        (name, _wanted(name, part, source, shared, defaults.tz, problems))
        for name, part in _entries(given, "jobs", JOBS_MAX, problems)
    ]
    return {name: wanted for name, wanted in entries if wanted is not None}


def _entries(given: object, key: str, most: int, problems: list[Problem]) -> list[tuple[str, Any]]:
    if not isinstance(given, Mapping):
        problems.append(Problem((key,), f"{shown(given)} is not a mapping of names"))
    elif len(given) > most:
        problems.append(
            Problem(
                (key,), f"there are {len(given)}; the limit is {most} per file. Split it into files with a source each"
            )
        )
    else:
        return list(given.items())
    return []


def _wanted(
    name: str, given: object, source: str, defaults: Mapping[str, Any], tz: str | None, problems: list[Problem]
) -> Wanted | None:
    """Read an entry.

    The readable part of an invalid one is compiled all the same, so that every problem is reported at once.
    """
    path, before = ("jobs", name), len(problems)
    part = _expanded(given, tz, path, problems)
    if isinstance(part, dict) and part.pop("name", None) is not None:
        problems.append(Problem((*path, "name"), "a job's name is the key above it; remove this line"))
    found = gather_fields(JobEntry, part, path, problems, raw=("nodes",))
    if not isinstance(given, Mapping):
        return None
    if given.get("schedule") is None and given.get("on_event") is None:
        problems.append(Problem(path, "schedule is missing; give it"))
    spec = _with_defaults(JobEntry(**{"target": _UNREAD, **found, "name": name}), given, defaults)
    nodes = {key: defaults[key] for key in _OF_NODES}
    reading = Gathering(path, problems, kind_of(given.get("schedule")), nodes)
    job = compile_recurring(spec, _NOW, reading=reading)
    if len(problems) > before:
        return None
    return Wanted(msgspec.structs.replace(job, owner=OWNER, source=source), spec.paused)


def _expanded(given: object, tz: str | None, path: Path, problems: list[Problem]) -> object:
    """Expand the short forms of an entry, including its schedule."""
    said = _in_full(given, path, problems)
    if not isinstance(said, dict) or "schedule" not in said:
        return said
    schedule = expanded(said.pop("schedule"), tz, (*path, "schedule"), problems)
    return said if schedule is None else {**said, "schedule": schedule}


def _in_full(given: object, path: Path, problems: list[Problem]) -> Any:
    """Expand short forms: an empty key counts as left out, a target without a type is a function, a callback is a word."""
    if not isinstance(given, Mapping):
        return given
    said = {key: part for key, part in given.items() if part is not None}
    said |= {word: short_callback(said[word]) for word in ("on_end", "on_failure") if isinstance(said.get(word), str)}
    target = said.get("target")
    if isinstance(target, str):
        said["target"] = {"type": FUNCTION, "handler": target}
    elif isinstance(target, Mapping):
        said["target"] = {"type": FUNCTION, **target}
    elif target is not None:
        remedy = "name a function, or write {type: webhook, url: …}"
        problems.append(Problem((*path, "target"), f"{shown(target)} is not a target; {remedy}"))
        said["target"] = _UNREAD_FIELDS
    return said


S = TypeVar("S", JobEntry, NodeSpec)


def _with_defaults(spec: S, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> S:
    """Apply the defaults of the file to a spec. An explicit null timeout is a policy of its own."""
    is_none = "timeout" in given and given["timeout"] is None
    left = {
        key: value for key, value in defaults.items() if given.get(key) is None and (key != "timeout" or not is_none)
    }
    whole = msgspec.structs.replace(spec, **left)
    return msgspec.structs.replace(whole, retry=_own_policy(whole)) if is_none else whole


def _own_policy(spec: JobSpec | NodeSpec | Defaults) -> RetryPolicy:
    return RetryPolicy() if spec.retry is None else spec.retry
