"""Compilation of a job's spec into the stored job; `domain/jobs/spec_of.py` is the way back.

An invalid part is refused: at once over HTTP, and gathered with the others in a file. `Reading` is that difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from duly.domain.errors import InvalidOption, InvalidWorkflow, Refused
from duly.domain.jobs.job import (
    Recurring,
    Submission,
    check_name,
    check_priority,
    check_tags,
    check_timeout,
)
from duly.domain.jobs.spec import Callback, JobSpec, NodeSpec, RetryPolicy, WorkflowSpec, WorkflowTarget, WorkSpec
from duly.domain.jobs.when import delay_of, fires_once, is_one_shot, moment_of, schedule_of
from duly.domain.limits.concurrency import Rate, check_concurrency, check_rate
from duly.domain.problems import Path
from duly.domain.redaction import check_rules
from duly.domain.runs import payload as payloads
from duly.domain.runs.callbacks import Callback as KnownCallback
from duly.domain.runs.callbacks import Callbacks, read_callback
from duly.domain.runs.expiry import check_expires_after, check_expires_at
from duly.domain.runs.options import NO_OPTIONS, RunOptions
from duly.domain.runs.retry import Retry, retry_policy
from duly.domain.targets.spec import FunctionTarget, read_target
from duly.domain.targets.target import Target, check_handler, handler_of
from duly.domain.workflows.target import target_for
from duly.domain.workflows.workflow import Node, Workflow, read_edges, read_map

T = TypeVar("T")
_NONE: Mapping[str, Any] = {}


class Reading(Protocol):
    """The way in which invalid parts of a spec are handled."""

    @property
    def is_sound(self) -> bool:
        """Return whether nothing has been refused so far."""

    def part(self, path: Path, read: Callable[..., T], *arguments: Any) -> T | None:
        """Read a part; None where it was refused and reading goes on."""

    def nodes(self, path: Path, given: Mapping[str, NodeSpec]) -> tuple[Node, ...]:
        """Read the nodes of a workflow."""


class AtOnce:
    """Reading that ends at the first refusal."""

    is_sound = True

    def part(self, path: Path, read: Callable[..., T], *arguments: Any) -> T | None:
        """Read a part. Raises Refused."""
        return read(*arguments)

    def nodes(self, path: Path, given: Mapping[str, NodeSpec]) -> tuple[Node, ...]:
        """Read nodes, which are not yet checked against each other. Raises InvalidWorkflow, naming the node."""
        return tuple(_named(name, node, self) for name, node in given.items())


AT_ONCE = AtOnce()


def compile_spec(spec: JobSpec, now: datetime, *, carried: Mapping[str, Any] = _NONE) -> Submission | Recurring:
    """Compile a spec to a job; `carried` are options of its runs that a spec does not name. Raises Refused."""
    return compile_one_shot(spec, carried) if is_one_shot(spec) else compile_recurring(spec, now, carried)


def compile_one_shot(
    spec: JobSpec, carried: Mapping[str, Any] = _NONE, defaults: RunOptions = NO_OPTIONS
) -> Submission:
    """Compile a spec to a one-shot; `defaults` are the options of its handler, if known. Raises Refused."""
    at, delay = moment_of(spec.schedule), delay_of(spec.schedule)
    return Submission(**_work(spec, carried, defaults, AT_ONCE), at=at, delay=delay)


def compile_recurring(
    spec: JobSpec,
    now: datetime | None,
    carried: Mapping[str, Any] = _NONE,
    defaults: RunOptions = NO_OPTIONS,
    reading: Reading = AT_ONCE,
) -> Recurring:
    """Compile a spec to a job with a stored definition; without a schedule it fires once, at `now`. Raises Refused."""
    if carried.get("parent") is not None:
        raise InvalidOption("parent is for one-shots; leave out name, schedule and on_event")
    if carried.get("depends_on"):
        raise InvalidOption(
            "depends_on is for one-shots; leave out name, schedule and on_event, or trigger this job with on_end of the other"
        )
    work = _work(spec, carried, defaults, reading)
    when = ("schedule",) if spec.on_event is None else ("on_event",)
    schedule = reading.part(when, schedule_of, spec, now)
    name = None if spec.name is None else reading.part((), check_name, spec.name, "name")
    return Recurring(**work, schedule=schedule or {}, name=name)


def compile_workflow(spec: WorkflowSpec, reading: Reading = AT_ONCE, **carried: Any) -> Workflow:
    """Compile the spec of a workflow; its nodes are not yet checked against each other. Raises Refused."""
    name = reading.part(("name",), check_name, spec.name, "name")
    tags = reading.part(("tags",), check_tags, spec.tags)
    callbacks = _callbacks(spec.on_end, spec.on_failure, reading)
    return Workflow(name or "", reading.nodes((), spec.nodes), tags or (), callbacks, **carried)


def compile_node(name: str, spec: NodeSpec, reading: Reading) -> Node:
    """Compile a node to a job without a schedule, and its dependencies. Raises Refused."""
    edges = reading.part((), read_edges, name, msgspec.to_builtins(spec.depends_on))
    over = reading.part((), read_map, name, msgspec.to_builtins(spec.map))
    return Node(name, Submission(**_work(spec, _NONE, NO_OPTIONS, reading)), edges or (), over)


def _named(name: str, node: NodeSpec, reading: Reading) -> Node:
    try:
        return compile_node(name, node, reading)
    except InvalidWorkflow:
        raise
    except Refused as error:
        raise InvalidWorkflow(f"node {name!r}: {error}", ("nodes", name)) from None


def _work(
    spec: JobSpec | NodeSpec, carried: Mapping[str, Any], defaults: RunOptions, reading: Reading
) -> dict[str, Any]:
    """Read the parts that jobs and nodes share."""
    handler, target = _target(spec, reading)
    return {
        "handler": handler,
        "payload": reading.part(("payload",), payloads.encode, spec.payload, f"the payload of {handler}") or "",
        "queue": reading.part(("queue",), check_name, spec.queue, "queue") or "",
        "priority": reading.part(("priority",), check_priority, spec.priority) or 0,
        "options": _options(spec, target, carried, defaults, reading),
    }


def _target(spec: JobSpec | NodeSpec, reading: Reading) -> tuple[str, Target | None]:
    """Read the handler that a worker must have, and the target, if it is no function."""
    requested = spec.target
    if isinstance(requested, FunctionTarget):
        return reading.part(("target",), _function, requested.handler) or "", None
    if isinstance(requested, WorkflowTarget):
        assert isinstance(spec, JobSpec)
        target = _workflow_target(spec, requested, reading)
    else:
        target = reading.part(("target",), read_target, requested)
    return "" if target is None else handler_of(target), target


def _function(handler: str) -> str:
    return check_handler(check_name(handler, "handler"))


def _workflow_target(spec: JobSpec, requested: WorkflowTarget, reading: Reading) -> Target | None:
    reading.part(("payload",), _check_no_payload, spec.payload)
    name = reading.part(("target", "name"), check_name, requested.name or spec.name or "workflow", "name")
    tags = reading.part(("tags",), check_tags, spec.tags)
    try:
        nodes = reading.nodes(("target",), requested.nodes)
        workflow = Workflow(name or "", nodes, tags or ())
        return reading.part(("target",), target_for, workflow) if reading.is_sound else None
    except InvalidWorkflow as error:
        raise InvalidWorkflow(str(error), ("target", *error.where)) from None


def _check_no_payload(payload: Mapping[str, Any]) -> None:
    if payload:
        raise InvalidOption("a job that starts a workflow takes no payload; give payloads to the workflow's nodes")


def _options(
    spec: WorkSpec, target: Target | None, carried: Mapping[str, Any], defaults: RunOptions, reading: Reading
) -> RunOptions:
    """Return the options of the job's runs; a policy taken from known defaults becomes the job's own."""
    options = compile_options(spec, target, carried, defaults, reading)
    return options if defaults == NO_OPTIONS else options.but(own=True)


def compile_options(
    spec: WorkSpec,
    target: Target | None = None,
    carried: Mapping[str, Any] = _NONE,
    defaults: RunOptions = NO_OPTIONS,
    reading: Reading = AT_ONCE,
) -> RunOptions:
    """Return the options of runs: the spec's, over the defaults. Raises InvalidOption."""
    found: dict[str, Any] = {} if target is None else {"target": target}
    if spec.retry is not None:
        found["retry"] = reading.part(("retry",), compile_retry, spec.retry)
    if spec.timeout is not None:
        found["timeout_seconds"] = reading.part(("timeout",), check_timeout, spec.timeout)
    if (key := spec.concurrency) is not None:
        requested = (key.key, key.limit, key.order)
        found |= reading.part(("concurrency",), check_concurrency, *requested) or {}
    if (rate := spec.rate_limit) is not None:
        requested_rate = Rate(rate.key, rate.limit, rate.per, rate.burst)
        found["rate"] = reading.part(("rate_limit",), check_rate, requested_rate)
    return defaults.but(**found, **_metadata(spec, defaults, reading), **carried)


def _metadata(spec: WorkSpec, defaults: RunOptions, reading: Reading) -> dict[str, Any]:
    """Read the metadata, which does not change how runs are run."""
    found: dict[str, Any] = {}
    if spec.tags:
        found["tags"] = reading.part(("tags",), check_tags, spec.tags) or ()
    if spec.redact:
        found["redact"] = reading.part(("redact",), _rules, defaults, spec.redact) or ()
    if spec.expires_after is not None:
        found["expires_seconds"] = reading.part(("expires_after",), check_expires_after, spec.expires_after)
    if spec.expires_at is not None:
        found["expires_at"] = reading.part(("expires_at",), _expires_at, spec)
    if isinstance(spec, JobSpec) and (callbacks := _callbacks(spec.on_end, spec.on_failure, reading)) is not None:
        found["callbacks"] = callbacks
    return found


def _rules(defaults: RunOptions, given: Sequence[str]) -> tuple[str, ...]:
    return check_rules((*defaults.metadata.redact, *check_rules(given)))


def compile_retry(spec: RetryPolicy) -> Retry:
    """Return the retry policy of a spec. Raises InvalidOption."""
    given = {name: getattr(spec, name) for name in spec.__struct_fields__ if name != "rules"}
    return retry_policy(**given, rules=[msgspec.structs.asdict(rule) for rule in spec.rules])


def _expires_at(spec: WorkSpec) -> float:
    assert spec.expires_at is not None
    if not isinstance(spec, JobSpec):
        return check_expires_at(spec.expires_at)
    if spec.on_event is not None or (spec.schedule is not None and not fires_once(spec.schedule)):
        raise InvalidOption("expires_at is for one-shots; for the runs of a schedule use expires_after")
    return check_expires_at(spec.expires_at, moment_of(spec.schedule))


def _callbacks(on_end: Callback | None, on_failure: Callback | None, reading: Reading) -> Callbacks | None:
    done, dead = (
        None
        if given is None
        else reading.part((word,), read_callback, word, KnownCallback(given.url, given.job, given.queue))
        for word, given in (("on_end", on_end), ("on_failure", on_failure))
    )
    return None if done is None and dead is None else Callbacks(done, dead)
