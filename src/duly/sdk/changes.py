"""What an edit changes of a recurring job: the options of a submit, of which only those that are named count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from duly.domain import payload as payloads
from duly.domain.duration import Duration
from duly.domain.errors import InvalidOption
from duly.domain.gate import Rate, check_concurrency, check_line, check_rate
from duly.domain.job import Recurring, check_arguments, check_name, check_priority, check_timeout
from duly.domain.run import amend_options
from duly.domain.triggers import asking
from duly.sdk.choices import Misfire, Mode, Overlap, spelled
from duly.sdk.retry import Retry

_NO_GATE: dict[str, Any] = {"gate": None, "fifo": False}

if TYPE_CHECKING:
    from duly.worker.handlers import Handler


class Changes(TypedDict, total=False):
    """Everything `edit(…)` takes. None takes a part of the schedule, the name or the timeout away."""

    arguments: Mapping[str, Any]
    at: datetime
    every: Duration
    cron: str
    when: str
    schedule: Mapping[str, Any]
    tz: str
    mode: Mode
    start: datetime | str | None
    end: datetime | str | None
    max_runs: int | None
    jitter: Duration | Mapping[str, Any] | None
    misfire: Misfire | None
    overlap: Overlap | None
    calendars: Sequence[str | Mapping[str, Any]] | None
    pause_on_failure: int | None
    name: str | None
    queue: str
    priority: int
    retry: Retry
    timeout: Duration | None
    concurrency: tuple[str, int] | None
    fifo: str | None
    rate: Rate | None


def changed(job: Recurring, changes: Changes, handler: Handler | None) -> Recurring:
    """Give a job in which only what is named is changed. Raises Refused, naming the value and the remedy."""
    unknown = sorted(changes.keys() - Changes.__annotations__.keys())
    if unknown:
        raise InvalidOption(f"edit takes no {unknown[0]}=; it takes {', '.join(Changes.__annotations__)}")
    if not changes:
        raise InvalidOption("nothing is to be changed; name what is, such as edit(cron=…)")
    return msgspec.structs.replace(
        job,
        schedule=_schedule(job, changes),
        payload=_payload(job, changes, handler),
        options=_options(job, changes, handler),
        **_plain(changes),
    )


def _schedule(job: Recurring, changes: Changes) -> Mapping[str, Any]:
    said = {option: value for option, value in changes.items() if option in asking.OPTIONS}
    if not said:
        return job.schedule
    shape = asking.amend(job.schedule, said, spelled)
    asking.check(shape)
    return shape


def _payload(job: Recurring, changes: Changes, handler: Handler | None) -> str:
    if "arguments" not in changes:
        return job.payload
    arguments = {**msgspec.json.decode(job.payload), **check_arguments(changes["arguments"], job.handler)}
    if handler is not None:
        return handler.encode((), arguments)
    return payloads.encode(arguments, f"the payload of {job.handler}")


def _options(job: Recurring, changes: Changes, handler: Handler | None) -> str | None:
    found: dict[str, Any] = {}
    if "retry" in changes:
        found["retry"] = changes["retry"].policy()
    if "timeout" in changes:
        found["timeout_seconds"] = check_timeout(changes["timeout"])
    if "concurrency" in changes:
        found |= _NO_GATE if changes["concurrency"] is None else check_concurrency(*changes["concurrency"])
    if "fifo" in changes:
        found |= _NO_GATE if changes["fifo"] is None else check_line(changes["fifo"])
    if "rate" in changes:
        found["rate"] = None if changes["rate"] is None else check_rate(changes["rate"])
    return amend_options(job.options, found, None if handler is None else handler.options)


def _plain(changes: Changes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "name" in changes:
        found["name"] = None if changes["name"] is None else check_name(changes["name"], "name")
    if "queue" in changes:
        found["queue"] = check_name(changes["queue"], "queue")
    if "priority" in changes:
        found["priority"] = check_priority(changes["priority"])
    return found
