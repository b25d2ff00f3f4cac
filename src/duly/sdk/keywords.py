"""Keywords of jobs: of `options(…)`, `edit(…)`, and of a handler's or target's declaration.

They become fields of the job's spec, which is checked and compiled as a request over HTTP is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol, TypedDict
from uuid import UUID

from duly.domain.duration import Duration
from duly.domain.errors import InvalidOption
from duly.domain.jobs.spec import Callback, Concurrency, JobSpec, RateLimit
from duly.domain.limits.concurrency import Rate, check_rate
from duly.domain.runs.callbacks import read_callback
from duly.domain.triggers.errors import nearest, shown
from duly.domain.triggers.schedule import options as asking
from duly.sdk.retry import Retry
from duly.worker.context import RunContext

Misfire = Literal["fire_once", "fire_all", "skip"] | Mapping[str, Any]
Overlap = Literal["skip", "buffer_one", "queue", "cancel_running", "allow"] | Mapping[str, Any]
CallbackTarget = str | Mapping[str, str]  # a URL, the name of a job, or the fields of either
Mode = Literal["fixed_rate", "fixed_delay"]
ExecutorName = Literal["ray"]
On = Literal["success", "failure", "always"]


class OneShot(Protocol):
    """The handle of a one-shot, as far as its dependents need it."""

    @property
    def job_id(self) -> UUID:
        """The job."""
        ...


DependsOnJob = OneShot | UUID | str


class When(TypedDict, total=False):
    """The keywords of a schedule."""

    cron: str | None
    every: Duration | None
    when: str | None
    schedule: Mapping[str, Any] | None
    tz: str | None
    mode: Mode | None
    start: datetime | str | None
    end: datetime | str | None
    max_runs: int | None
    jitter: Duration | Mapping[str, Any] | None
    misfire: Misfire | None
    overlap: Overlap | None
    calendars: Sequence[str | Mapping[str, Any]] | None
    pause_on_failure: int | None


class Rules(When, total=False):
    """The keywords that a handler and each of its jobs have."""

    queue: str | None
    priority: int | None
    retry: Retry | None
    timeout: Duration | None
    tags: Sequence[str] | None
    expires_after: Duration | None
    on_end: CallbackTarget | None
    on_failure: CallbackTarget | None
    redact: Sequence[str] | None


class Declared(Rules, total=False):
    """Everything that a handler or a target declares."""

    payload: Mapping[str, Any] | None


class Limits(Rules, total=False):
    """The keywords that jobs alone have, new or changed."""

    at: datetime | None
    name: str | None
    concurrency: tuple[str, int] | None  # a concurrency key, and how many runs of it may be ready or running at once
    fifo: str | None  # a concurrency key whose runs go one after another, in order
    rate: Rate | None


class Keywords(Limits, total=False):
    """Everything that `options(…)` takes."""

    delay: Duration | None
    key: str | None
    expires_at: datetime | None
    request_id: str | None
    traceparent: str | None
    parent: RunContext | UUID | None
    depends_on: Sequence[DependsOnJob | tuple[DependsOnJob, On]] | None
    connection: Any
    tenant: int | None


class Changes(Limits, total=False):
    """Everything that `edit(…)` takes. None removes a part of the schedule, the name or a limit."""

    arguments: Mapping[str, Any]


_SPELLED_OTHERWISE = {"rate": "rate_limit", "fifo": "concurrency"}


def spelled(option: str) -> str:
    """Write an option as a caller does."""
    return f"{option}="


def check_known(given: Mapping[str, Any], kind: type, what: str) -> None:
    """Refuse an unknown keyword. Raises InvalidOption, naming the nearest."""
    known = list(kind.__annotations__)
    for name in given.keys() - set(known):
        meant = nearest(name, known)
        remedy = f"did you mean {meant}=?" if meant else f"it takes {', '.join(known)}"
        raise InvalidOption(f"{what} takes no {name}=; {remedy}")


def shape_of(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the shape of the keywords' schedule; None without any. Raises InvalidOption, InvalidSchedule."""
    return asking.compose({option: given.get(option) for option in asking.OPTIONS}, spelled)


def fields_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a spec from keywords, without its schedule. Raises InvalidOption."""
    if given.get("concurrency") is not None and given.get("fifo") is not None:
        raise InvalidOption("give concurrency= or fifo=, not both; fifo= is a limit of 1 at once, in order")
    found = {}
    for name, value in given.items():
        field = _SPELLED_OTHERWISE.get(name, name)
        if field in JobSpec.__struct_fields__ and name not in ("schedule", "payload"):
            found[field] = None if value is None else _read(name, value)
    return found


def _read(name: str, value: Any) -> Any:
    match name:
        case "retry":
            return check_retry(value).spec()
        case "concurrency":
            key, limit = _pair(value)
            return Concurrency(key=key, limit=limit)
        case "fifo":
            return Concurrency(key=value, order="fifo")
        case "rate":
            check_rate(value)
            return RateLimit(key=value.key, limit=value.limit, per=_plain(value.per), burst=value.burst)
        case "on_end" | "on_failure":
            known = read_callback(name, value)
            return None if known is None else Callback(url=known.url, job=known.job, queue=known.queue)
    return _plain(value)


def _plain(value: Any) -> Any:
    """Write a length of time as JSON can."""
    return value.total_seconds() if isinstance(value, timedelta) else value


def check_retry(value: object) -> Retry:
    """Check a policy as users write it. Raises InvalidOption."""
    if not isinstance(value, Retry):
        raise InvalidOption(f"retry {shown(value)} is not a policy; give Retry(max_attempts=3), or leave it out")
    return value


def _pair(value: object) -> tuple[Any, Any]:
    """Check a concurrency key and its number of slots. Raises InvalidOption."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise InvalidOption(
            f"concurrency {shown(value)} is not a key and a limit; give both, such as concurrency=('warehouse', 3)"
        )
    return value[0], value[1]
