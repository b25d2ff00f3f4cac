"""The options of one submit, compiled at once: the job, without its payload."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.errors import InvalidArguments, InvalidOption
from duly.domain.jobs.compile import compile_one_shot, compile_options, compile_recurring
from duly.domain.jobs.job import (
    Recurring,
    Submission,
    check_arguments,
    check_delay,
    check_key,
    check_moment,
    check_request_id,
    check_traceparent,
)
from duly.domain.jobs.spec import JobSpec
from duly.domain.jobs.spec_of import target_spec
from duly.domain.number import is_whole
from duly.domain.runs import payload as payloads
from duly.domain.runs.dependencies import DependsOn, check_dependencies
from duly.domain.runs.options import NO_OPTIONS, RunOptions
from duly.domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT
from duly.domain.targets.spec import FunctionTarget
from duly.domain.triggers.errors import shown
from duly.sdk.keywords import Keywords, Rules, check_known, fields_of, shape_of
from duly.worker.context import RunContext
from duly.worker.handlers import Handler


class UncheckedWork(msgspec.Struct, frozen=True):
    """Work with unchecked arguments: a target, or a handler of another app."""

    name: str
    options: RunOptions = NO_OPTIONS
    queue: str = QUEUE_DEFAULT
    priority: int = PRIORITY_DEFAULT
    is_compiled: bool = True

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Encode a payload, given by keywords or as one mapping. Raises InvalidArguments, InvalidPayload."""
        return self.encode_open(args, kwargs, lambda given: given)

    def encode_open(self, args: Sequence[Any], kwargs: Mapping[str, Any], write: Callable[[Any], Any]) -> str:
        """Encode a payload of which some is not known yet, which `write` encodes otherwise. Raises as `encode` does."""
        if len(args) > 1 or (args and kwargs):
            raise InvalidArguments(f"{self.name} takes its payload by keywords, or as one mapping; give one of them")
        given = check_arguments(args[0], self.name) if args else kwargs
        return payloads.encode(write(dict(given)), f"the payload of {self.name}")

    def decode_result(self, result: str | None) -> Any:
        """Decode the result of a run."""
        return None if result is None else msgspec.json.decode(result)


Work = Handler | UncheckedWork
"""The work of a submit: a registered function, a target, or a handler of another app."""


class Choices:
    """The options given to `options(…)` for some work.

    Raises InvalidOption, InvalidSchedule or TriggerError, naming the remedy.
    """

    def __init__(self, work: Work, given: Keywords) -> None:
        check_known(given, Keywords, "options")
        self.given: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        self._check_call()
        shape = shape_of(self.given)
        self._check_moments(is_schedule=shape is not None)
        schedule = shape or _moment(self.given)
        spec = _laid_over(work, {**fields_of(self.given), "schedule": schedule})
        compiling = (self._carried(), _defaults(work.options, given))
        self.recurring = None if shape is None else compile_recurring(spec, None, *compiling)
        self.one_shot = compile_one_shot(spec, *compiling) if shape is None else None

    @property
    def job(self) -> Submission | Recurring:
        """The job, with an empty payload."""
        job = self.recurring or self.one_shot
        assert job is not None
        return job

    def shot(self, payload: str) -> Submission:
        """Return the one-shot with a payload."""
        assert self.one_shot is not None
        return msgspec.structs.replace(self.one_shot, payload=payload)

    def _check_call(self) -> None:
        key, tenant = self.given.get("key"), self.given.get("tenant")
        if key is not None:
            check_key(key)
        if tenant is not None and (not is_whole(tenant) or tenant < 1):
            raise InvalidOption(
                f"tenant {shown(tenant)} is not a tenant's number, 1 or more; `duly tenants` shows the number of each name"
            )

    def _check_moments(self, *, is_schedule: bool) -> None:
        """Refuse contradicting options, in the words of keywords."""
        if "delay" in self.given and ("at" in self.given or is_schedule):
            raise InvalidOption(
                "delay= goes with neither at= nor every= nor another schedule; say when it starts with at= or start="
            )
        if "name" in self.given and not is_schedule:
            raise InvalidOption(
                "name= belongs to a schedule; give every=, cron=, when= or schedule= as well, or key= to submit only once"
            )
        if "expires_at" in self.given and is_schedule:
            raise InvalidOption("expires_at= is for what runs once; for each run of a schedule give expires_after=")

    def _carried(self) -> dict[str, Any]:
        """Return the metadata of runs beside the spec, checked: the request, and the dependencies."""
        checks: dict[str, Callable[[Any], Any]] = {
            "request_id": check_request_id,
            "traceparent": check_traceparent,
            "parent": _parent,
            "depends_on": _depends_on,
        }
        return {name: check(self.given[name]) for name, check in checks.items() if name in self.given}


def handler_options(rules: Rules) -> RunOptions:
    """Return the default options of a handler's or target's runs. Raises InvalidOption."""
    fields = {name: rule for name, rule in fields_of(rules).items() if rule is not None}
    return compile_options(JobSpec(target=FunctionTarget(handler="any"), **fields))


def _laid_over(work: Work, fields: Mapping[str, Any]) -> JobSpec:
    """Return the spec of a job: the given options, over those of its work."""
    target = target_spec(work.name, work.options, is_shown=False)
    return JobSpec(**{"target": target, "queue": work.queue, "priority": work.priority, **fields})


def _defaults(options: RunOptions, given: Mapping[str, Any]) -> RunOptions:
    """Return the options of some work without those set to None; an explicit null timeout is a policy of its own."""
    is_own = options != NO_OPTIONS and "timeout" in given and given["timeout"] is None
    cleared: dict[str, Any] = {"timeout_seconds": None, "own": True} if is_own else {}
    if given.get("tags") is not None:
        cleared["tags"] = ()
    return options.but(**cleared)


def _moment(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schedule of a one-shot."""
    if "at" in given:
        return {"trigger": {"type": "at", "at": check_moment(given["at"], "at").isoformat()}}
    if "delay" in given:
        return {"trigger": {"type": "at", "delay": check_delay(given["delay"]).total_seconds()}}
    return None


def _parent(value: RunContext | UUID) -> UUID:
    """Check the parent run, or its id. Raises InvalidOption."""
    run_id = value.id if isinstance(value, RunContext) else value
    if not isinstance(run_id, UUID):
        raise InvalidOption(f"parent {value!r} is not a run; give the run that your handler was given, or a run's id")
    return run_id


def _depends_on(values: Any) -> DependsOn:
    """Check dependencies: handles or ids of one-shots, or each with its required outcome. Raises InvalidOption."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InvalidOption(f"after {values!r} is not a list; give one: [{values!r}]")
    pairs = (value if isinstance(value, tuple) else (value, "success") for value in values)
    return check_dependencies(
        (job if isinstance(job, UUID | str) else getattr(job, "job_id", repr(job)), on) for job, on in pairs
    )
