"""What a caller chooses for one submit, checked as soon as it is said, and laid over the handler's own options."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from duly.domain.duration import Duration
from duly.domain.errors import InvalidOption
from duly.domain.job import (
    Recurring,
    Submission,
    check_delay,
    check_gate,
    check_moment,
    check_name,
    check_priority,
    check_timeout,
)
from duly.domain.run import DEFAULTS, Options, encode_options
from duly.domain.triggers.interval import parse_every
from duly.domain.triggers.timing import every_shape
from duly.sdk.retry import Retry
from duly.worker.handlers import Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Everything `options(…)` takes. Raises InvalidOption or InvalidSchedule, naming the value and the remedy."""

    at: datetime | None = None
    delay: Duration | None = None
    every: Duration | None = None
    name: str | None = None
    queue: str | None = None
    priority: int | None = None
    key: str | None = None
    retry: Retry | None = None
    timeout: Duration | UnsetType | None = field(default=UNSET)
    concurrency: tuple[str, int] | None = None  # a key, and how many runs of it may be ready or running at once
    connection: Any = None
    tenant: int | None = None

    def __post_init__(self) -> None:
        _check_times(self)
        _check_names(self)
        if self.priority is not None:
            check_priority(self.priority)
        if self.timeout is not UNSET:
            check_timeout(self.timeout)
        if self.concurrency is not None:
            check_gate(*self.concurrency)
        if self.tenant is not None and (isinstance(self.tenant, bool) or self.tenant < 1):
            raise InvalidOption(f"tenant {self.tenant!r} is not a tenant's number: 1 or more")


def submission(handler: Handler, choices: Choices, payload: str) -> Submission:
    """Build the one-shot that the choices ask for."""
    return Submission(
        handler.name,
        payload,
        choices.queue or handler.queue,
        handler.priority if choices.priority is None else choices.priority,
        choices.at,
        None if choices.delay is None else check_delay(choices.delay),
        _options(handler, choices),
    )


def recurring(handler: Handler, choices: Choices, every: timedelta, payload: str) -> Recurring:
    """Build the schedule that the choices ask for; `at` is its first moment."""
    return Recurring(
        handler.name,
        payload,
        choices.queue or handler.queue,
        handler.priority if choices.priority is None else choices.priority,
        every_shape(int(every.total_seconds()), choices.at),
        choices.name,
        _options(handler, choices),
    )


def handler_options(retry: Retry | None, timeout: Duration | None) -> Options:
    """Build what a handler's runs carry."""
    given: dict[str, Any] = {} if retry is None else {"retry": retry.policy()}
    return Options(timeout_seconds=check_timeout(timeout), **given)


def _options(handler: Handler, choices: Choices) -> str | None:
    changes: dict[str, Any] = {}
    if choices.retry is not None:
        changes["retry"] = choices.retry.policy()
    if choices.concurrency is not None:
        changes["gate"] = check_gate(*choices.concurrency)
    if choices.timeout is not UNSET:
        changes["timeout_seconds"] = check_timeout(choices.timeout)
    options = encode_options(msgspec.structs.replace(handler.options, **changes))
    return "{}" if options is None and handler.options != DEFAULTS else options  # Said, and so not left to the handler.


def _check_times(choices: Choices) -> None:
    if choices.at is not None:
        check_moment(choices.at, "at")
    if choices.delay is not None:
        check_delay(choices.delay)
        if choices.at is not None or choices.every is not None:
            raise InvalidOption("delay= goes with neither at= nor every=; say when it starts with at= alone")
    if choices.every is not None:
        parse_every(choices.every)


def _check_names(choices: Choices) -> None:
    if choices.name is not None:
        check_name(choices.name, "name")
        if choices.every is None:
            raise InvalidOption("name= belongs to a schedule; give every= as well, or key= to submit only once")
    if choices.queue is not None:
        check_name(choices.queue, "queue")
    if choices.key is not None:
        check_name(choices.key, "key")
