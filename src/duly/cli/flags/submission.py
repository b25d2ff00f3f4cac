"""From flags to a submitted job: checks, defaults of the app's handler, and the printed answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import UUID

import click
import msgspec

from duly.cli.flags import job as job_flags
from duly.cli.flags import schedule as schedule_flags
from duly.cli.flags.arguments import read_duration, read_moment, read_payload
from duly.cli.flags.target import handler_of, pairs_of, read_target
from duly.cli.render.job import FIRES_SHOWN, both_clocks, job_lines, submitted_target_text
from duly.client.asynchronous.client import AsyncClient
from duly.client.definitions import JobFields, SubmittedJob
from duly.client.errors import Forbidden
from duly.domain.errors import InvalidArguments
from duly.domain.fields import non_defaults
from duly.domain.jobs.compile import compile_one_shot, compile_recurring
from duly.domain.jobs.job import Recurring, Submission, check_delay, check_key, check_moment
from duly.domain.jobs.spec import JobSpec, RetryPolicy
from duly.domain.jobs.spec_of import rules_of, spec_of
from duly.domain.redaction import Redactor
from duly.domain.runs.dependencies import check_dependencies, read_dependency
from duly.domain.runs.options import NO_OPTIONS, RunOptions
from duly.domain.runs.run import QUEUE_DEFAULT
from duly.domain.targets.spec import Called, FunctionTarget
from duly.domain.targets.target import is_reserved
from duly.domain.targets.words import unroutable_remedy
from duly.wire.queues import Worker
from duly.wire.runs import Dependency

_NAMES_SHOWN = 10


def read(typed: Mapping[str, Any], app: Any | None) -> Submission | Recurring:
    """Check everything that needs no database. Raises UsageError, Refused."""
    if typed.get("key") is not None:
        check_key(typed["key"])
    requested = read_target(typed)
    handler = None if requested is not None or app is None else app.registry[handler_of(typed)]
    options = NO_OPTIONS if handler is None else handler.options
    shape = schedule_flags.compose(typed)
    _check_moments(typed, is_schedule=shape is not None)
    fields = {"schedule": shape or _moment(typed), **_of_handler(handler)}
    fields |= job_flags.fields_of(typed, policy_of(options))
    payload = _payload(typed, requested, handler)
    target = FunctionTarget(handler=_handler_name(handler_of(typed), app)) if requested is None else requested
    spec = JobSpec(target=target, payload=payload, **fields)
    if handler is not None:
        app.check_queue(spec.queue)  # type: ignore[union-attr]
    if shape is not None:
        return compile_recurring(spec, None, defaults=options)
    depends_on = check_dependencies(map(read_dependency, typed.get("depends_on", ())))
    return compile_one_shot(spec, {"depends_on": depends_on} if depends_on else {}, options)


def policy_of(options: RunOptions) -> RetryPolicy:
    """Return the retry policy of options as a spec has it."""
    policy: RetryPolicy = rules_of(options.but(own=True))["retry"]
    return policy


def fields_of(job: Submission | Recurring) -> JobFields:
    """Return the fields of a new job, without its target."""
    fields = non_defaults(spec_of(job, is_shown=False))
    return cast(JobFields, {name: value for name, value in fields.items() if name != "target"})


async def send(client: AsyncClient, job: Submission | Recurring, key: str | None) -> SubmittedJob:
    """Submit the job."""
    target = spec_of(job, is_shown=False).target
    dependency = [Dependency(job=UUID(one), on=cast(Any, on)) for one, on in job.options.metadata.depends_on]
    return await client.jobs.create(target, key=key, depends_on=dependency or None, **fields_of(job))


async def answer(
    client: AsyncClient, job: Submission | Recurring, sent: SubmittedJob, app_path: str | None
) -> list[str]:
    """Describe the accepted job, its fires, and what keeps it from starting, as far as we may know."""
    replayed = "   (submitted before under this key; nothing new was created)" if sent.is_replayed else ""
    says = job_lines(await client.jobs.get(sent.job_id)) if isinstance(job, Recurring) else _once(job, sent)
    live = await live_workers(client)
    obstacles = [] if live is None else _obstacles(job, live, app_path)
    return [f"job {sent.job_id}{replayed}", *says, *obstacles]


def _once(job: Submission, sent: SubmittedJob) -> list[str]:
    """Return when a one-shot runs."""
    timing = "Once, now" if job.at is None and not job.delay else "Once"
    assert sent.next_run_at is not None, "a one-shot has its moment"
    return [f"{timing}: {submitted_target_text(job)} on queue {job.queue}", f"{'at':6}{both_clocks(sent.next_run_at)}"]


async def live_workers(client: AsyncClient) -> list[Worker] | None:
    """Return the live workers; None: only the operator may know."""
    try:
        return [worker async for worker in client.workers.list()]
    except Forbidden:
        return None


def document(job: Submission | Recurring, sent: SubmittedJob, lines: Sequence[str]) -> dict[str, Any]:
    """Return the same for programs: the job, the only run of a one-shot, the schedule's description, and the sentences."""
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
            remedy = unroutable_remedy(job.handler, job.queue, app)
            return [f"no worker serves queue {job.queue}, so it waits; {remedy}"]
        flag = "" if job.queue == QUEUE_DEFAULT else f" --queue {job.queue}"
        return [f"no worker serves queue {job.queue}, so it waits; start one: {command}{flag}"]
    if not any(job.handler in row.handlers for row in serving):
        known = sorted({name for row in serving for name in row.handlers})
        if is_reserved(job.handler):
            remedy = unroutable_remedy(job.handler, job.queue, app)
            return [f"no live worker of queue {job.queue} offers {job.handler}, so it waits; {remedy}"]
        others = f"known on queue {job.queue}: {_few(known) or 'none'}"
        return [f"no live worker has handler {job.handler!r}, so it waits; start one that does: {command}   ({others})"]
    return []


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


def _handler_name(name: str, app: Any | None) -> str:
    """Return the handler's whole name: the prefix of a known app may be left out."""
    return name if app is None else str(app.registry.full_name(name))


def _of_handler(handler: Any | None) -> dict[str, Any]:
    return {} if handler is None else {"queue": handler.queue, "priority": handler.priority}


def _payload(typed: Mapping[str, Any], target: Called | None, handler: Any | None) -> dict[str, Any]:
    """Parse the arguments; an app's handler checks them by its annotations."""
    payload = read_payload(pairs_of(typed, target), typed.get("json_text"))
    if handler is None:
        return payload
    try:
        checked: dict[str, Any] = msgspec.json.decode(handler.encode((), payload))
    except InvalidArguments as error:
        rules = (*handler.options.rules(), *typed.get("redact", ()))
        raise InvalidArguments(Redactor(rules, payload).text(str(error))) from None
    return checked


def _check_moments(typed: Mapping[str, Any], *, is_schedule: bool) -> None:
    """Refuse contradicting flags. Raises UsageError."""
    if not is_schedule:
        if typed.get("name") is not None:
            raise click.UsageError(
                "--name is for a schedule; add --every, --cron, --when or --schedule, or use --key to submit only once"
            )
        if typed.get("at") is not None and typed.get("delay") is not None:
            raise click.UsageError("give --at or --delay, not both")
        return
    if typed.get("expires_at") is not None:
        raise click.UsageError("--expires-at is for what runs once; for each run of a schedule give --expires-after")
    if typed.get("depends_on"):
        raise click.UsageError("--depends-on is for what runs once; a schedule is triggered by --on-end of another job")
    if typed.get("delay") is not None:
        raise click.UsageError("a schedule takes no --delay; --every begins with --at, and any other with --start")


def _moment(typed: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schedule of a one-shot."""
    at = read_moment(typed.get("at"), "at")
    if at is not None:
        return {"trigger": {"type": "at", "at": check_moment(at, "at").isoformat()}}
    if typed.get("delay") is None:
        return None
    return {"trigger": {"type": "at", "delay": check_delay(read_duration(typed["delay"])).total_seconds()}}
