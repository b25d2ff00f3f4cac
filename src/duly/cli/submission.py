"""From what was typed to a job in the store: checks, defaults of the app's handler, and the answer for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from duly.cli import gate_flags, job_fields, schedule_flags
from duly.cli.arguments import read_duration, read_moment, read_payload
from duly.cli.fires import both_clocks
from duly.cli.job_text import FIRES_SHOWN, job_lines, what_submitted_runs
from duly.cli.retry_flags import RetryTyped, changed_retry, expiry_changes, is_typed
from duly.cli.target_flags import read_target
from duly.client.asynchronous.client import AsyncClient
from duly.client.definitions import SubmittedJob
from duly.client.errors import Forbidden
from duly.domain.jobs.job import (
    Recurring,
    Submission,
    check_delay,
    check_key,
    check_moment,
    check_name,
    check_priority,
    check_tags,
    check_timeout,
)
from duly.domain.runs import payload as payloads
from duly.domain.runs.callbacks import check_then
from duly.domain.runs.dependencies import check_after, read_after
from duly.domain.runs.options import NO_OPTIONS, RunOptions, options_of
from duly.domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT
from duly.domain.targets.target import Target, check_handler, handler_of, is_reserved
from duly.domain.targets.words import what_lets_it_run
from duly.wire.queues import Worker

_NAMES_SHOWN = 10


class Typed(RetryTyped, frozen=True, kw_only=True):
    """What was typed, unread."""

    json_text: str | None
    at: str | None = None
    delay: str | None = None
    every: str | None = None
    cron: str | None = None
    when: str | None = None
    schedule: str | None = None
    tz: str | None = None
    mode: str | None = None
    start: str | None = None
    end: str | None = None
    max_runs: str | None = None
    jitter: str | None = None
    misfire: str | None = None
    overlap: str | None = None
    calendars: tuple[str, ...] = ()
    pause_on_failure: str | None = None
    name: str | None = None
    queue: str | None = None
    priority: int | None = None
    key: str | None = None
    timeout: str | None = None
    concurrency: str | None = None
    fifo: str | None = None
    rate: str | None = None
    burst: int | None = None
    tags: tuple[str, ...] = ()
    on_done: str | None = None
    on_dead: str | None = None
    after: tuple[str, ...] = ()


class Defaults(msgspec.Struct, frozen=True):
    """What holds where nothing was typed: the handler's own choices if its app is known."""

    queue: str = QUEUE_DEFAULT
    priority: int = PRIORITY_DEFAULT
    options: RunOptions = NO_OPTIONS


def read(typed: Typed, app: Any | None) -> Submission | Recurring:
    """Check everything that can be checked before the database is asked. Raises Refused."""
    if typed.key is not None:
        check_key(typed.key)
    target = read_target(typed)
    handler = _handler_name(typed.handler, app) if target is None else handler_of(target)
    payload, defaults = _arguments(typed, target, app)
    shape = schedule_flags.compose(msgspec.structs.asdict(typed))
    if shape is not None:
        return _recurring(typed, handler, shape, payload, defaults)
    if typed.name is not None:
        raise click.UsageError(
            "--name is for a schedule; add --every, --cron, --when or --schedule, or use --key to submit only once"
        )
    if typed.at is not None and typed.delay is not None:
        raise click.UsageError("give --at or --delay, not both")
    at = read_moment(typed.at, "at")
    return Submission(
        **_shared(typed, handler, payload, defaults),
        at=check_moment(at, "at") if at else None,
        delay=check_delay(read_duration(typed.delay)) if typed.delay is not None else None,
    )


async def send(client: AsyncClient, job: Submission | Recurring, key: str | None) -> SubmittedJob:
    """Make the job durable."""
    fields, after = job_fields.fields_of(job), job_fields.after_of(job)
    return await client.jobs.create(job_fields.target_of_job(job), key=key, after=after, **fields)


async def answer(
    client: AsyncClient, job: Submission | Recurring, sent: SubmittedJob, app_path: str | None
) -> list[str]:
    """Say what was accepted, when it fires, and what stands in its way, as far as we may know."""
    again = "   (submitted before under this key; nothing new was made)" if sent.is_replayed else ""
    says = job_lines(await client.jobs.get(sent.job_id)) if isinstance(job, Recurring) else _once(job, sent)
    live = await live_workers(client)
    obstacles = [] if live is None else _obstacles(job, live, app_path)
    return [f"job {sent.job_id}{again}", *says, *obstacles]


def _once(job: Submission, sent: SubmittedJob) -> list[str]:
    """Say when a one-shot runs."""
    how = "Once, now" if job.at is None and not job.delay else "Once"
    assert sent.next_run_at is not None, "a one-shot has its moment"
    return [f"{how}: {what_submitted_runs(job)} on queue {job.queue}", f"{'at':6}{both_clocks(sent.next_run_at)}"]


async def live_workers(client: AsyncClient) -> list[Worker] | None:
    """Name the workers that live; None: only the operator may know."""
    try:
        return [worker async for worker in client.workers.list()]
    except Forbidden:
        return None


def document(job: Submission | Recurring, sent: SubmittedJob, lines: Sequence[str]) -> dict[str, Any]:
    """Give the same for a program: the job, the only run of a one-shot, what a schedule means, and the sentences."""
    means = {"description": sent.description, "next_fires": sent.next_fires[:FIRES_SHOWN]}
    more = means if isinstance(job, Recurring) else {}
    run = {} if sent.run_id is None else {"run_id": sent.run_id}
    return {"job_id": sent.job_id, **run, **more, "replayed": sent.is_replayed, "says": list(lines[1:])}


def _obstacles(job: Submission | Recurring, live: Sequence[Worker], app_path: str | None) -> list[str]:
    app = app_path or "module:app"
    command = f"duly worker {app}"
    serving = [row for row in live if job.queue in row.queues]
    if not serving:
        if is_reserved(job.handler):
            remedy = what_lets_it_run(job.handler, job.queue, app)
            return [f"nobody serves queue {job.queue} at this moment, so it waits; {remedy}"]
        flag = "" if job.queue == QUEUE_DEFAULT else f" --queue {job.queue}"
        return [f"nobody serves queue {job.queue} at this moment, so it waits; this would serve it: {command}{flag}"]
    if not any(job.handler in row.handlers for row in serving):
        known = sorted({name for row in serving for name in row.handlers})
        if is_reserved(job.handler):
            remedy = what_lets_it_run(job.handler, job.queue, app)
            return [f"no live worker of queue {job.queue} offers {job.handler}, so it waits; {remedy}"]
        others = f"known on queue {job.queue}: {_few(known) or 'none'}"
        return [f"no live worker knows handler {job.handler!r}, so it waits for one that does: {command}   ({others})"]
    return []


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


def _handler_name(name: str, app: Any | None) -> str:
    """Give the handler's whole name: of an app that is known and has a name, that may be left out."""
    checked = check_handler(check_name(name, "handler"))
    return checked if app is None else str(app.registry.full_name(checked))


def _arguments(typed: Typed, target: Target | None, app: Any | None) -> tuple[str, Defaults]:
    """Read the arguments; an app's handler checks them by its annotations and lends its own defaults."""
    payload = read_payload(typed.pairs, typed.json_text)
    if target is not None:
        return payloads.encode(payload, "the payload"), Defaults(options=options_of(target=target))
    if app is None:
        return payloads.encode(payload, "the payload"), Defaults()
    handler = app.registry[typed.handler]
    app.check_queue(typed.queue or handler.queue)
    return handler.encode((), payload), Defaults(handler.queue, handler.priority, handler.options)


def _recurring(typed: Typed, handler: str, shape: dict[str, Any], payload: str, defaults: Defaults) -> Recurring:
    if typed.expires_at is not None:
        raise click.UsageError("--expires-at is for what runs once; for each run of a schedule give --expires-after")
    if typed.after:
        raise click.UsageError("--after is for what runs once; a schedule is triggered by --on-done of another job")
    if typed.delay is not None:
        raise click.UsageError("a schedule takes no --delay; --every begins with --at, and any other with --start")
    return Recurring(
        **_shared(typed, handler, payload, defaults),
        schedule=shape,
        name=check_name(typed.name, "name") if typed.name is not None else None,
    )


def _shared(typed: Typed, handler: str, payload: str, defaults: Defaults) -> dict[str, Any]:
    return {
        "handler": handler,
        "payload": payload,
        "queue": check_name(typed.queue, "queue") if typed.queue is not None else defaults.queue,
        "priority": check_priority(typed.priority if typed.priority is not None else defaults.priority),
        "options": _own_options(typed, defaults.options),
    }


def _own_options(typed: Typed, defaults: RunOptions) -> RunOptions:
    """Read the options; none at all leaves them to the worker's handler, so what was typed is the job's own."""
    options, chosen = _options(typed, defaults), (typed.timeout, typed.concurrency, typed.fifo, typed.rate)
    is_own = is_typed(typed) or any(value is not None for value in chosen)
    return options.but(own=True) if is_own else options


def _options(typed: Typed, options: RunOptions) -> RunOptions:
    if is_typed(typed):
        retry = changed_retry(msgspec.structs.asdict(typed), options.policy.retry)
        options = options.but(retry=retry)
    if expiry := expiry_changes(typed, read_moment(typed.at, "at")):
        options = options.but(**expiry)
    if typed.timeout is not None:
        options = options.but(timeout_seconds=check_timeout(read_duration(typed.timeout)))
    if waits := gate_flags.read(msgspec.structs.asdict(typed)):
        options = options.but(**waits)
    if typed.tags:
        options = options.but(tags=check_tags(typed.tags))
    if typed.after:
        options = options.but(after=check_after(map(read_after, typed.after)))
    if (then := check_then(typed.on_done, typed.on_dead)) is not None:
        options = options.but(then=then)
    return options
