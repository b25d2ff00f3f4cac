"""What an edit changes of a recurring job: the options of a submit, of which only those that are named count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from duly.domain.duration import Duration
from duly.domain.errors import InvalidOption
from duly.domain.jobs.job import Recurring, check_arguments, check_name, check_priority, check_timeout
from duly.domain.limits.concurrency import Rate, check_concurrency, check_line, check_rate
from duly.domain.runs import payload as payloads
from duly.domain.runs.callbacks import Then, check_then
from duly.domain.runs.expiry import check_expires_after
from duly.domain.runs.run import amend_options, then_of
from duly.domain.triggers.schedule import options
from duly.sdk.choices import Misfire, Mode, Overlap, Told, spelled
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
    expires_after: Duration | None
    on_done: Told | None
    on_dead: Told | None


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
    said = {option: value for option, value in changes.items() if option in options.OPTIONS}
    if not said:
        return job.schedule
    shape = options.amend(job.schedule, said, spelled)
    options.check(shape)
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
        found["retry"] = changes["retry"].read()
    if "timeout" in changes:
        found["timeout_seconds"] = check_timeout(changes["timeout"])
    if "concurrency" in changes:
        found |= _NO_GATE if changes["concurrency"] is None else check_concurrency(*changes["concurrency"])
    if "fifo" in changes:
        found |= _NO_GATE if changes["fifo"] is None else check_line(changes["fifo"])
    if "rate" in changes:
        found["rate"] = None if changes["rate"] is None else check_rate(changes["rate"])
    if "expires_after" in changes:
        after = changes["expires_after"]
        found["expires_seconds"] = None if after is None else check_expires_after(after)
    if "on_done" in changes or "on_dead" in changes:
        found["then"] = _then(job, changes)
    return amend_options(job.options, found, None if handler is None else handler.options)


def _then(job: Recurring, changes: Changes) -> Then | None:
    """Say who is told: of ends and of burials, and who is not named stays."""
    before = then_of(job.options) or Then()
    done = check_then(changes["on_done"], None) if "on_done" in changes else before
    dead = check_then(None, changes["on_dead"]) if "on_dead" in changes else before
    then = Then((done or Then()).done, (dead or Then()).dead)
    return None if then == Then() else then


def _plain(changes: Changes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "name" in changes:
        found["name"] = None if changes["name"] is None else check_name(changes["name"], "name")
    if "queue" in changes:
        found["queue"] = check_name(changes["queue"], "queue")
    if "priority" in changes:
        found["priority"] = check_priority(changes["priority"])
    return found
