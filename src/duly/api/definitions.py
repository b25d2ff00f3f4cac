"""Between the shapes of jobs on the wire and the jobs we know."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, overload

import msgspec

from duly.domain.duration import to_iso
from duly.domain.errors import InvalidOption, InvalidWorkflow, Refused
from duly.domain.jobs.job import Recurring, Submission, check_delay, check_name, check_tags, check_timeout
from duly.domain.limits.concurrency import Rate, check_concurrency, check_rate, told_concurrency, told_rate
from duly.domain.runs import payload as payloads
from duly.domain.runs.callbacks import Callback as KnownCallback
from duly.domain.runs.callbacks import check_then, told_fields
from duly.domain.runs.dependencies import After, check_after
from duly.domain.runs.expiry import check_expires_after, check_expires_at, expiry_moment
from duly.domain.runs.retry import Retry, retry_policy, told_policy
from duly.domain.runs.run import (
    Options,
    encode_options,
    is_marks_only,
    read_options,
    said,
    target_of,
    then_of,
)
from duly.domain.targets.shapes import read_target, told_in_short
from duly.domain.targets.target import Allowed, Target, check_handler, handler_of
from duly.domain.targets.told import told_of
from duly.domain.triggers.at import At
from duly.domain.triggers.on_event import ON_EVENT
from duly.domain.triggers.schedule import options as asking
from duly.domain.triggers.schedule.preview import fires
from duly.domain.triggers.schedule.schedules import Schedule
from duly.domain.workflows.references import Reference
from duly.domain.workflows.target import target_for
from duly.domain.workflows.workflow import Edge, Node, On, Workflow
from duly.wire.callbacks import Callback, ToldCallback
from duly.wire.events import EventMatch
from duly.wire.jobs.definitions import Concurrency, JobTarget, RateLimit, RetryPolicy, RetryRule, RunDefinition
from duly.wire.jobs.jobs import Fire, FunctionTarget, JobDefinition, NewJob, NodeDefinition, WorkflowTarget
from duly.wire.runs import FollowedJob, TargetSummary

NEXT_FIRES = 3
# What a node says as a job does.
_OF_NODES = tuple(set(NodeDefinition.__struct_fields__) & set(JobDefinition.__struct_fields__))


def is_plain(job: JobDefinition) -> bool:
    """Say whether a job is a one-shot without a name: it needs no definition of its own, its run carries all."""
    return job.name is None and job.on_event is None and (job.schedule is None or _is_moment(job.schedule))


def _is_moment(shape: Mapping[str, Any]) -> bool:
    said = {key for key, value in shape.items() if value is not None}
    return said == {"trigger"} and _fires_once(shape)


def not_plain() -> InvalidOption:
    """Say that a one-shot without a name cannot become another kind of job."""
    return InvalidOption("a one-shot takes no name, on_event or other schedule than a moment; create a job with them")


def is_for_now(job: JobDefinition) -> bool:
    """Say whether a job runs at once, and once: it waits for no moment and no event."""
    return job.schedule is None and job.on_event is None


def one_shot(job: JobDefinition, extra: Mapping[str, Any]) -> Submission:
    """Read a plain one-shot. Raises Refused."""
    handler, target = _target(job)
    delay = delay_of_shape(job.schedule)
    return Submission(
        handler,
        payload_text(job.payload, handler),
        check_name(job.queue, "queue"),
        job.priority,
        None if job.schedule is None or delay is not None else _moment(job.schedule),
        delay,
        options_text(job, target, extra),
    )


def one_shot_of(job: Recurring) -> Submission:
    """Give the one-shot that a definition of a moment alone is. Raises Refused."""
    if job.name is not None or not _is_moment(job.schedule):
        raise not_plain()
    delay = delay_of_shape(job.schedule)
    at = None if delay is not None else _moment(job.schedule)
    return Submission(job.handler, job.payload, job.queue, job.priority, at, delay, job.options)


def recurring(job: JobDefinition, now: datetime, extra: Mapping[str, Any]) -> Recurring:
    """Read a job with a definition of its own; without a schedule it fires once, at `now`. Raises Refused."""
    if parent_of(job) is not None:
        raise InvalidOption("parent belongs to a one-shot without a name; leave out its name, schedule or on_event")
    if after_of(job):
        raise InvalidOption(
            "after belongs to a one-shot without a name; leave out its name, schedule or on_event, or let on_done trigger it"
        )
    handler, target = _target(job)
    shape = _shape(job, now)
    return Recurring(
        handler,
        payload_text(job.payload, handler),
        check_name(job.queue, "queue"),
        job.priority,
        shape,
        None if job.name is None else check_name(job.name, "name"),
        options_text(job, target, extra),
    )


def _target(job: JobDefinition) -> tuple[str, Target | None]:
    """Read what a job runs: the handler that a worker must know, and the target, where it is no function. Raises Refused."""
    if isinstance(job.target, FunctionTarget):
        return check_handler(check_name(job.target.handler, "handler")), None
    target = _workflow(job, job.target) if isinstance(job.target, WorkflowTarget) else read_target(job.target)
    return handler_of(target), target


def _workflow(job: JobDefinition, asked: WorkflowTarget) -> Target:
    if job.payload:
        raise InvalidOption("a job that starts a workflow has no payload of its own; give it to the workflow's nodes")
    name = check_name(asked.name or job.name or "workflow", "name")
    try:
        return target_for(Workflow(name, nodes_of(asked.nodes), check_tags(job.tags)))
    except InvalidWorkflow as error:
        raise InvalidWorkflow(str(error), ("target", *error.where)) from None


def nodes_of(asked: Mapping[str, NodeDefinition]) -> tuple[Node, ...]:
    """Read nodes, each as a job without a schedule; they are not yet checked against each other. Raises InvalidWorkflow."""
    return tuple(_node(name, node) for name, node in asked.items())


def _node(name: str, asked: NodeDefinition) -> Node:
    edges = tuple(Edge(one) if isinstance(one, str) else Edge(one.node, On(one.on)) for one in asked.after)
    over = None if asked.map is None else Reference(asked.map.node, tuple(asked.map.path))
    try:
        shot = one_shot(JobDefinition(**{field: getattr(asked, field) for field in _OF_NODES}), {})
    except Refused as error:
        raise InvalidWorkflow(f"node {name!r}: {error}", ("nodes", name)) from None
    return Node(name, shot, edges, over)


@overload
def admitted(job: Recurring, allowed: Allowed) -> Recurring: ...
@overload
def admitted(job: Submission, allowed: Allowed) -> Submission: ...
def admitted(job: Recurring | Submission, allowed: Allowed) -> Recurring | Submission:
    """Check that what a job does is allowed here. Raises InvalidOption."""
    allowed.check_told(then_of(job.options))
    allowed.check(target_of(job.options))
    return job


def _shape(job: JobDefinition, now: datetime) -> Mapping[str, Any]:
    """Say when a job runs, in the shape that is compiled. Raises Refused."""
    if job.on_event is not None:
        return _event_shape(job, job.on_event)
    shape = (
        {"trigger": {"type": "at", "at": now.isoformat(timespec="milliseconds")}}
        if job.schedule is None
        else job.schedule
    )
    asking.check(shape)
    return shape


def _event_shape(job: JobDefinition, match: EventMatch) -> Mapping[str, Any]:
    if job.schedule is not None:
        raise InvalidOption("a job has a schedule or on_event, not both; make two jobs, or leave one out")
    if "event" in job.payload:
        raise InvalidOption("the payload has a field event, which is where the event will stand; give it another name")
    kind = check_name(match.type, "on_event.type")
    if match.source is None:
        return {ON_EVENT: {"type": kind}}
    return {ON_EVENT: {"type": kind, "source": check_name(match.source, "on_event.source")}}


def waits_shape(shape: Mapping[str, Any]) -> dict[str, Any]:
    """Show what a job waits for: the moments of a schedule, or events."""
    match = shape.get(ON_EVENT)
    if match is None:
        return {"schedule": shape, "on_event": None}
    return {"schedule": None, "on_event": EventMatch(**match)}


def payload_text(payload: Mapping[str, Any], handler: str) -> str:
    """Write a payload for the store. Raises InvalidPayload."""
    return payloads.encode(payload, f"the payload of {handler}")


def options_text(job: JobDefinition, target: Target | None, extra: Mapping[str, Any]) -> str | None:
    """Write what a job's runs carry; nothing when all is left to the handler. Raises Refused."""
    own: dict[str, Any] = {} if target is None else {"target": target}
    if job.retry is not None:
        own["retry"] = _retry(job.retry)
    if job.timeout is not None:
        own["timeout_seconds"] = check_timeout(job.timeout)
    if job.concurrency is not None:
        own |= check_concurrency(job.concurrency.key, job.concurrency.limit, job.concurrency.order)
    if (asked := job.rate_limit) is not None:
        own["rate"] = check_rate(Rate(asked.key, asked.limit, asked.per, asked.burst))
    then = check_then(callback_of(job.on_done), callback_of(job.on_dead))
    marks: dict[str, Any] = {"tags": check_tags(job.tags), "parent": parent_of(job), "after": after_of(job)}
    marks |= {"then": then, **_expiry(job)}
    text = encode_options(Options(**extra, **own, **marks))
    return said(text) if own else text


def _retry(asked: RetryPolicy) -> Retry:
    said = {name: getattr(asked, name) for name in ("policy", "jitter", "delays", "max_age")}
    rules = [msgspec.structs.asdict(rule) for rule in asked.rules]
    return retry_policy(asked.max_attempts, asked.base, asked.cap, **said, rules=rules)


def _expiry(job: JobDefinition) -> dict[str, Any]:
    """Read until when runs are worth starting. Raises InvalidOption, InvalidSchedule."""
    found: dict[str, Any] = {}
    if job.expires_after is not None:
        found["expires_seconds"] = check_expires_after(job.expires_after)
    if job.expires_at is not None:
        if job.on_event is not None or (job.schedule is not None and not _fires_once(job.schedule)):
            raise InvalidOption("expires_at is for what runs once; for each run of a schedule give expires_after")
        found["expires_at"] = check_expires_at(job.expires_at, moment_of_shape(job.schedule))
    return found


def _fires_once(shape: Mapping[str, Any]) -> bool:
    trigger = shape.get("trigger")
    return isinstance(trigger, Mapping) and trigger.get("type") == "at"


def expiry_shape(options: str | None) -> dict[str, Any]:
    """Show until when a job's runs are worth starting."""
    known = None if options is None else read_options(options, None)
    if known is None:
        return {}
    at, seconds = known.expires_at, known.expires_seconds
    return {
        "expires_at": None if at is None else expiry_moment(at),
        "expires_after": None if seconds is None else _iso(seconds),
    }


def callback_of(asked: Callback | None) -> KnownCallback | None:
    """Read who is told, as it is asked for."""
    return None if asked is None else KnownCallback(asked.url, asked.job, asked.queue)


def callback_shape(options: str | None, when: Literal["done", "dead"]) -> ToldCallback | None:
    """Show who is told of the ends of a job's runs, or of their burials."""
    then = then_of(options)
    told = None if then is None else told_fields(getattr(then, when))
    return None if told is None else ToldCallback(**told)


def parent_of(job: JobDefinition) -> str | None:
    """Give the id of the run whose subtask a job is, as runs carry it."""
    return str(job.parent) if isinstance(job, NewJob) and job.parent is not None else None


def after_of(job: JobDefinition) -> After:
    """Give what a job follows, as runs carry it. Raises InvalidOption."""
    if not isinstance(job, NewJob):
        return ()
    return check_after((one.job, one.on) if isinstance(one, FollowedJob) else (one, "success") for one in job.after)


def marks_of(options: str | None) -> dict[str, Any]:
    """Give what a job carries of the request that made it, which a change that says nothing of it leaves as it is."""
    known = None if options is None else read_options(options, None)
    marks = {} if known is None else {"request_id": known.request_id, "traceparent": known.traceparent}
    return {name: mark for name, mark in marks.items() if mark is not None}


def coming_fires(schedule: Schedule, after: datetime, n: int, job_id: str) -> list[Fire]:
    """Show the next fires of a schedule from a moment on."""
    return [Fire(**shape) for shape in fires(schedule, after, n, job_id)]


def target_shape(handler: str, options: str | None) -> JobTarget:
    """Show what a job runs, without its secrets; of what this version cannot read, no more than its type."""
    return JobTarget(**told_of(handler, options))


def target_summary(handler: str, options: str | None) -> TargetSummary:
    """Show what runs, in short."""
    return TargetSummary(**told_in_short(handler, options))


def run_definition(handler: str, options: str | None, version: int) -> RunDefinition:
    """Show the definition that a run uses or used, without its secrets."""
    return RunDefinition(
        version=version,
        target=target_shape(handler, options),
        retry=retry_shape(options),
        timeout=timeout_shape(options),
        concurrency=concurrency_shape(options),
        rate_limit=rate_shape(options),
        on_done=callback_shape(options, "done"),
        on_dead=callback_shape(options, "dead"),
        **expiry_shape(options),
    )


def retry_shape(options: str | None) -> RetryPolicy | None:
    """Show how a job's runs are retried; None leaves it to the handler."""
    if options is None or is_marks_only(options):
        return None
    told = told_policy(read_options(options, None).retry)
    return RetryPolicy(**{**told, "rules": [RetryRule(**rule) for rule in told["rules"]]})


def timeout_shape(options: str | None) -> str | None:
    """Show how long a run may take; None: as long as it likes, or as its handler says."""
    seconds = None if options is None else read_options(options, None).timeout_seconds
    return None if seconds is None else _iso(seconds)


def concurrency_shape(options: str | None) -> Concurrency | None:
    """Show the gate that a job's runs go through."""
    told = None if options is None else told_concurrency(read_options(options, None))
    return None if told is None else Concurrency(**told)


def rate_shape(options: str | None) -> RateLimit | None:
    """Show the rate at which a job's runs start."""
    told = None if options is None else told_rate(read_options(options, None))
    return None if told is None else RateLimit(**told)


def tags_shape(options: str | None) -> list[str]:
    """Show the words a job is found by."""
    return [] if options is None else list(read_options(options, None).tags)


def _iso(seconds: float) -> str:
    return to_iso(timedelta(seconds=seconds))


def moment_of_shape(shape: Mapping[str, Any] | None) -> datetime | None:
    """Give the moment of a schedule that fires once, at a moment; None of a delay and of any other. Raises TriggerError."""
    if shape is None or delay_of_shape(shape) is not None:
        return None
    trigger = asking.check(shape).trigger
    return trigger.moment if isinstance(trigger, At) else None


def delay_of_shape(shape: Mapping[str, Any] | None) -> timedelta | None:
    """Give how long after its creation a one-shot fires, where that is what it says. Raises TriggerError."""
    if shape is None:
        return None
    trigger = shape.get("trigger")
    if not isinstance(trigger, Mapping) or trigger.get("type") != "at" or trigger.get("delay") is None:
        return None
    asking.check(shape)
    return check_delay(trigger["delay"])


def _moment(shape: Mapping[str, Any]) -> datetime:
    trigger = asking.check(shape).trigger
    if not isinstance(trigger, At):
        raise InvalidOption(f"trigger {shape!r} is not of type at")
    return trigger.moment
