"""`duly jobs edit`: change a job with a schedule, or a one-shot that still waits; only what is typed changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import click
import msgspec

from duly.cli import apps, gate_flags, job_fields, schedule_flags
from duly.cli.arguments import read_duration, read_payload
from duly.cli.client import connected
from duly.cli.finding import job_id_of
from duly.cli.job_text import is_one_shot, job_lines, job_row
from duly.cli.options import with_settings
from duly.cli.output import json_option, print_json
from duly.cli.retry_flags import changed_retry, retry_flags
from duly.cli.runs import print_run
from duly.cli.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import VersionChanged
from duly.clock import host_now
from duly.domain.duration import to_iso
from duly.domain.errors import InvalidOption, Unsettled
from duly.domain.jobs.compile import compile_recurring
from duly.domain.jobs.job import Recurring, amended, check_delay, check_name, check_priority, check_timeout
from duly.domain.jobs.spec import JobSpec
from duly.domain.runs import payload as payloads
from duly.domain.runs.expiry import check_expires_after
from duly.domain.runs.options import NO_OPTIONS, RunOptions
from duly.domain.triggers.schedule import options
from duly.settings import Settings
from duly.wire.jobs.jobs import Job

_LOOKS_MAX = 10

_RETRY = (
    "max_attempts",
    "retry_policy",
    "retry_base",
    "retry_cap",
    "retry_jitter",
    "retry_delays",
    "max_age",
    "on_error",
)


@click.command("edit")
@click.argument("job", metavar="JOB")
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--payload", metavar="JSON", help="All arguments anew, as one JSON object.")
@click.option("--at", metavar="MOMENT", help="Of what runs once: its moment, with its offset; of --every: the first.")
@click.option("--delay", metavar="DURATION", help="Of what runs once: so long from now, as PT10M or seconds.")
@schedule_flags.schedule_flags
@click.option("--name", help="Another name; none takes it away.")
@click.option("--queue", help="Another queue.")
@click.option("--priority", type=int, help="0 (first) to 9 (last).")
@retry_flags
@click.option("--timeout", metavar="DURATION", help="When an attempt is stopped; none for never.")
@gate_flags.gate_flags
@json_option
@with_settings("app", "url")
def edit_job(settings: Settings, job: str, as_json: bool, **typed: Any) -> None:
    """Change JOB, given by its id or its name, from now on. Only what is typed changes.

    A one-shot without a name, given by its id, can be changed until its first attempt starts.

    KEY=VALUE changes these arguments and leaves the others. `none` takes away what may be left out: --end none, --jitter
    none, --calendar none.
    """
    typed = {option: value for option, value in typed.items() if value not in (None, ())}
    if not typed:
        raise click.UsageError("nothing is to be changed; add what is, such as --cron '0 3 * * *'")
    if "payload" in typed and "pairs" in typed:
        raise click.UsageError("give key=value pairs or --payload, not both")
    asyncio.run(_edit(settings, job, typed, as_json))


async def _edit(settings: Settings, job: str, typed: dict[str, Any], as_json: bool) -> None:
    app = apps.load(settings.app) if settings.app else None
    async with connected(settings) as client:
        job_id = await job_id_of(client, job)
        version = await amend(client, job_id, lambda before: changed(before, typed, app))
        found = await client.jobs.get(job_id)
        is_once = is_one_shot(found)
        if not as_json:
            say("\n".join([f"job {job_id}: version {version}", *([] if is_once else job_lines(found))]))
        if is_once:  # Its run says it all.
            await print_run(client, job_id, as_json=as_json)
        elif as_json:
            print_json(job_row(found))


async def amend(client: AsyncClient, job_id: UUID, change: Callable[[Recurring], Recurring]) -> int:
    """Change something about a job, and give its new version. Raises NotFound, DeclaredInCode, Unsettled."""
    for _ in range(_LOOKS_MAX):
        standing = await client.jobs.get(job_id)
        before = _recurring_of(standing)
        wanted = change(before)
        fields, target = job_fields.fields_of(wanted), job_fields.target_of_job(wanted)
        if fields == job_fields.fields_of(before):
            return standing.version
        try:
            return (await client.jobs.replace(job_id, target, version=standing.version, **fields)).version
        except VersionChanged:  # Somebody was faster: what was typed is changed in what they have made of it.
            continue
    raise Unsettled(f"job {job_id}")


def _recurring_of(job: Job) -> Recurring:
    """Give the definition of a job that the API tells."""
    told = msgspec.to_builtins(job)
    stated = {name: told[name] for name in JobSpec.__struct_fields__ if told.get(name) is not None}
    try:
        definition = msgspec.convert(stated, JobSpec)
    except msgspec.ValidationError as error:
        raise InvalidOption(
            f"this job cannot be changed with this version of Duly, but with a newer one: {error}"
        ) from None
    return compile_recurring(definition, host_now())


def changed(job: Recurring, typed: dict[str, Any], app: Any | None) -> Recurring:
    """Give a job in which only what was typed is changed. Raises UsageError, Refused."""
    handler = None if app is None else app.registry.get(job.handler)
    return msgspec.structs.replace(
        job,
        schedule=_schedule(job.schedule, typed),
        payload=_payload(job, typed, handler),
        options=_options(job, typed, handler),
        **_plain(typed),
    )


def _schedule(shape: Mapping[str, Any], typed: dict[str, Any]) -> Mapping[str, Any]:
    changed = schedule_flags.amend(shape, {key: typed[key] for key in options.OPTIONS if key in typed})
    if "delay" not in typed:
        return changed
    if "at" in typed:
        raise click.UsageError("give --at or --delay, not both")
    if changed.get("trigger", {}).get("type") != "at":
        raise click.UsageError("a schedule takes no --delay; --every begins with --at, and any other with --start")
    delay = to_iso(check_delay(read_duration(typed["delay"])))
    return {**changed, "trigger": {"type": "at", "delay": delay}}


def _payload(job: Recurring, typed: dict[str, Any], handler: Any | None) -> str:
    if "payload" in typed:
        arguments = read_payload((), typed["payload"], "--payload")
    elif "pairs" in typed:
        arguments = {**msgspec.json.decode(job.payload), **read_payload(typed["pairs"], None)}
    else:
        return job.payload
    text: str = payloads.encode(arguments, "the payload") if handler is None else handler.encode((), arguments)
    return text


def _options(job: Recurring, typed: dict[str, Any], handler: Any | None) -> RunOptions:
    defaults: RunOptions = NO_OPTIONS if handler is None else handler.options
    changes: dict[str, Any] = {}
    if any(flag in typed for flag in _RETRY):
        changes["retry"] = changed_retry(typed, job.options.or_handlers(defaults).policy.retry)
    if "expires_after" in typed:
        is_none = typed["expires_after"] == schedule_flags.NONE
        changes["expires_seconds"] = None if is_none else check_expires_after(read_duration(typed["expires_after"]))
    if "timeout" in typed:
        is_none = typed["timeout"] == schedule_flags.NONE
        changes["timeout_seconds"] = None if is_none else check_timeout(read_duration(typed["timeout"]))
    return amended(job, changes | gate_flags.read(typed), defaults)


def _plain(typed: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "name" in typed:
        found["name"] = None if typed["name"] == schedule_flags.NONE else check_name(typed["name"], "name")
    if "queue" in typed:
        found["queue"] = check_name(typed["queue"], "queue")
    if "priority" in typed:
        found["priority"] = check_priority(typed["priority"])
    return found
