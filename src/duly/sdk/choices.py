"""What a caller chooses for one submit, checked as soon as it is said, and laid over the handler's own options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from duly.domain.duration import Duration
from duly.domain.errors import InvalidOption
from duly.domain.jobs.job import (
    Recurring,
    Submission,
    check_delay,
    check_key,
    check_moment,
    check_name,
    check_priority,
    check_request_id,
    check_tags,
    check_timeout,
    check_traceparent,
)
from duly.domain.limits.concurrency import Rate, check_concurrency, check_line, check_rate
from duly.domain.number import is_whole
from duly.domain.runs.callbacks import check_then
from duly.domain.runs.dependencies import After, check_after
from duly.domain.runs.expiry import check_expires_after, check_expires_at
from duly.domain.runs.run import DEFAULTS, Options, encode_options, said
from duly.domain.triggers.errors import shown
from duly.domain.triggers.schedule import options as asking
from duly.sdk.retry import Retry
from duly.worker.context import RunContext

Misfire = Literal["fire_once", "fire_all", "skip"] | Mapping[str, Any]
Overlap = Literal["skip", "buffer_one", "queue", "cancel_running", "allow"] | Mapping[str, Any]
Told = str | Mapping[str, str]  # a URL, the name of a job, or the fields of either
Mode = Literal["fixed_rate", "fixed_delay"]


class OneShot(Protocol):
    """The handle of a one-shot, as far as one that follows it needs to know it."""

    @property
    def job_id(self) -> UUID:
        """The job."""
        ...


Followed = OneShot | UUID | str
On = Literal["success", "failure", "always"]


class Work(Protocol):
    """What is submitted, as far as a submit needs to know it: a registered function, or a target."""

    @property
    def name(self) -> str:
        """The handler that its runs carry."""
        ...

    @property
    def queue(self) -> str:
        """The queue its runs go to, unless a submit says otherwise."""
        ...

    @property
    def priority(self) -> int:
        """Its priority, unless a submit says otherwise."""
        ...

    @property
    def options(self) -> Options:
        """What its runs carry, unless a submit says otherwise."""
        ...

    @property
    def is_compiled(self) -> bool:
        """Whether arguments can be checked already."""
        ...

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Write arguments as a payload. Raises InvalidArguments, InvalidPayload."""
        ...

    def encode_open(self, args: Sequence[Any], kwargs: Mapping[str, Any], write: Callable[[Any], Any]) -> str:
        """Write arguments of which some are not known yet, which `write` writes otherwise. Raises as `encode` does."""
        ...

    def decode_result(self, result: str | None) -> Any:
        """Read what a run resulted in."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Everything `options(…)` takes. Raises InvalidOption, InvalidSchedule or TriggerError, naming the value and the remedy."""

    at: datetime | None = None
    delay: Duration | None = None
    every: Duration | None = None
    cron: str | None = None
    when: str | None = None
    schedule: Mapping[str, Any] | None = None
    tz: str | None = None
    mode: Mode | None = None
    start: datetime | str | None = None
    end: datetime | str | None = None
    max_runs: int | None = None
    jitter: Duration | Mapping[str, Any] | None = None
    misfire: Misfire | None = None
    overlap: Overlap | None = None
    calendars: Sequence[str | Mapping[str, Any]] | None = None
    pause_on_failure: int | None = None
    name: str | None = None
    queue: str | None = None
    priority: int | None = None
    key: str | None = None
    retry: Retry | None = None
    timeout: Duration | UnsetType | None = field(default=UNSET)
    concurrency: tuple[str, int] | None = None  # a key, and how many runs of it may be ready or running at once
    fifo: str | None = None  # a key whose runs go one after another, in order
    rate: Rate | None = None
    expires_at: datetime | None = None
    expires_after: Duration | None = None
    tags: Sequence[str] | None = None
    on_done: Told | None = None
    on_dead: Told | None = None
    request_id: str | None = None
    traceparent: str | None = None
    parent: RunContext | UUID | None = None
    after: Sequence[Followed | tuple[Followed, On]] | None = None
    connection: Any = None
    tenant: int | None = None

    def __post_init__(self) -> None:
        shape = self.shape()
        if shape is not None:
            asking.check(shape)
        _check_moments(self, is_schedule=shape is not None)
        _check_names(self, is_schedule=shape is not None)
        if self.priority is not None:
            check_priority(self.priority)
        if self.timeout is not UNSET:
            check_timeout(self.timeout)
        self.waits()
        self.marks()
        if self.expires_at is not None and shape is not None:
            raise InvalidOption("expires_at= is for what runs once; for each run of a schedule give expires_after=")
        if self.parent is not None and shape is not None:
            raise InvalidOption("parent= belongs to a one-shot; leave out every=, cron=, when= and schedule=")
        if self.after is not None and shape is not None:
            raise InvalidOption(
                "after= belongs to a one-shot; leave out every=, cron=, when= and schedule=, or let on_done= trigger the schedule"
            )
        if self.retry is not None:
            check_retry(self.retry)
        if self.tenant is not None and (not is_whole(self.tenant) or self.tenant < 1):
            raise InvalidOption(
                f"tenant {shown(self.tenant)} is not a tenant's number, 1 or more; `duly tenants` shows the number of each name"
            )

    def waits(self) -> dict[str, Any]:
        """Give what holds the runs back besides time, checked."""
        if self.concurrency is not None and self.fifo is not None:
            raise InvalidOption("give concurrency= or fifo=, not both; fifo= is a limit of 1 at once, in order")
        found = {} if self.concurrency is None else check_concurrency(*_pair(self.concurrency))
        if self.fifo is not None:
            found = check_line(self.fifo)
        return found if self.rate is None else {**found, "rate": check_rate(self.rate)}

    def marks(self) -> dict[str, Any]:
        """Give what the runs are marked with, checked: tags, who asked for them, and who is told of their ends."""
        given = {
            "tags": self.tags,
            "request_id": self.request_id,
            "traceparent": self.traceparent,
            "parent": self.parent,
            "after": self.after,
        }
        checks: dict[str, Callable[[Any], Any]] = {
            "tags": check_tags,
            "request_id": check_request_id,
            "traceparent": check_traceparent,
            "parent": _parent,
            "after": _after,
        }
        then = check_then(self.on_done, self.on_dead)
        marks = {name: checks[name](value) for name, value in given.items() if value is not None}
        marks |= self._expiry()
        return marks if then is None else {**marks, "then": then}

    def _expiry(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.expires_at is not None:
            found["expires_at"] = check_expires_at(self.expires_at, self.at)
        if self.expires_after is not None:
            found["expires_seconds"] = check_expires_after(self.expires_after)
        return found

    def shape(self) -> dict[str, Any] | None:
        """Give the shape of the schedule that is asked for; None for a one-shot."""
        return asking.compose({option: getattr(self, option) for option in asking.OPTIONS}, spelled)


def check_retry(value: object) -> Retry:
    """Take a policy as users write it. Raises InvalidOption."""
    if not isinstance(value, Retry):
        raise InvalidOption(f"retry {shown(value)} is not a policy; give Retry(max_attempts=3), or leave it out")
    return value


def _pair(value: object) -> tuple[Any, Any]:
    """Take a key and how many of its runs may be under way at once. Raises InvalidOption."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidOption(
            f"concurrency {shown(value)} is not a key and a limit; give both, such as concurrency=('warehouse', 3)"
        )
    return value[0], value[1]


def _parent(value: RunContext | UUID) -> str:
    """Take the run whose subtask this is, or its id. Raises InvalidOption."""
    run_id = value.id if isinstance(value, RunContext) else value
    if not isinstance(run_id, UUID):
        raise InvalidOption(f"parent {value!r} is not a run; give the run that your handler was given, or a run's id")
    return str(run_id)


def _after(values: Sequence[Followed | tuple[Followed, On]]) -> After:
    """Take what is followed: handles or ids of one-shots, or each with the end that is asked of it. Raises InvalidOption."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InvalidOption(f"after {values!r} is not a list; give one: [{values!r}]")
    pairs = (value if isinstance(value, tuple) else (value, "success") for value in values)
    return check_after(
        (job if isinstance(job, UUID | str) else getattr(job, "job_id", repr(job)), on) for job, on in pairs
    )


def spelled(option: str) -> str:
    """Write an option as a caller does."""
    return f"{option}="


def submission(handler: Work, choices: Choices, payload: str) -> Submission:
    """Build the one-shot that the choices ask for."""
    return Submission(
        handler.name,
        payload,
        choices.queue or handler.queue,
        handler.priority if choices.priority is None else choices.priority,
        choices.at,
        None if choices.delay is None else check_delay(choices.delay),
        run_options(handler, choices.retry, choices.timeout, {**choices.waits(), **choices.marks()}),
    )


def recurring(handler: Work, choices: Choices, shape: Mapping[str, Any], payload: str) -> Recurring:
    """Build the recurring job that the choices ask for."""
    return Recurring(
        handler.name,
        payload,
        choices.queue or handler.queue,
        handler.priority if choices.priority is None else choices.priority,
        shape,
        choices.name,
        run_options(handler, choices.retry, choices.timeout, {**choices.waits(), **choices.marks()}),
    )


def handler_options(
    retry: Retry | None,
    timeout: Duration | None,
    tags: Sequence[str] = (),
    *,
    expires_after: Duration | None = None,
    on_done: Told | None = None,
    on_dead: Told | None = None,
) -> Options:
    """Build what a handler's runs carry."""
    given: dict[str, Any] = {} if retry is None else {"retry": check_retry(retry).read()}
    if expires_after is not None:
        given["expires_seconds"] = check_expires_after(expires_after)
    then = check_then(on_done, on_dead)
    return Options(timeout_seconds=check_timeout(timeout), tags=check_tags(tags), then=then, **given)


def run_options(
    handler: Work,
    retry: Retry | None,
    timeout: Duration | UnsetType | None,
    more: Mapping[str, Any] | None = None,
) -> str | None:
    """Write what the runs of a job carry: the handler's own options, with what was chosen laid over them."""
    changes: dict[str, Any] = dict(more or {})
    if retry is not None:
        changes["retry"] = check_retry(retry).read()
    if timeout is not UNSET:
        changes["timeout_seconds"] = check_timeout(timeout)
    options = encode_options(msgspec.structs.replace(handler.options, **changes))
    return said(options) if handler.options != DEFAULTS else options


def _check_moments(choices: Choices, *, is_schedule: bool) -> None:
    if choices.at is not None:
        check_moment(choices.at, "at")
    if choices.delay is not None:
        check_delay(choices.delay)
        if choices.at is not None or is_schedule:
            raise InvalidOption(
                "delay= goes with neither at= nor every= nor another schedule; say when it starts with at= or start="
            )


def _check_names(choices: Choices, *, is_schedule: bool) -> None:
    if choices.name is not None:
        check_name(choices.name, "name")
        if not is_schedule:
            raise InvalidOption(
                "name= belongs to a schedule; give every=, cron=, when= or schedule= as well, or key= to submit only once"
            )
    if choices.queue is not None:
        check_name(choices.queue, "queue")
    if choices.key is not None:
        check_key(choices.key)
