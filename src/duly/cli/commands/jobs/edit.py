"""`duly jobs edit`: change a job with a schedule, or a one-shot that still waits; only what is typed changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import click
import msgspec

from duly.cli.client import run_request
from duly.cli.commands.runs.runs import print_run
from duly.cli.flags import apps
from duly.cli.flags import job as job_flags
from duly.cli.flags import schedule as schedule_flags
from duly.cli.flags.arguments import read_duration, read_payload
from duly.cli.flags.names import job_id_of
from duly.cli.flags.settings import with_settings
from duly.cli.flags.submission import fields_of, policy_of
from duly.cli.render.job import is_one_shot, job_lines, job_row
from duly.cli.render.output import json_option, print_json
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import VersionChanged
from duly.clock import host_now
from duly.domain.duration import to_iso
from duly.domain.errors import InvalidOption, Unsettled
from duly.domain.jobs.compile import compile_recurring
from duly.domain.jobs.job import check_delay
from duly.domain.jobs.spec import JobSpec
from duly.domain.jobs.spec_of import rules_of
from duly.domain.runs.options import NO_OPTIONS
from duly.domain.targets.spec import FunctionTarget
from duly.domain.triggers.on_event import ON_EVENT
from duly.domain.triggers.schedule.options import OPTIONS
from duly.settings import Settings
from duly.wire.jobs.jobs import Job

_LOOKS_MAX = 10

_POLICY = frozenset({"retry", "timeout", "concurrency", "rate_limit"})


@click.command("edit")
@click.argument("job", metavar="JOB")
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--payload", metavar="JSON", help="All arguments, replaced by one JSON object.")
@click.option("--at", metavar="MOMENT", help="One-shots: the time, with an offset; with --every: the first.")
@click.option("--delay", metavar="DURATION", help="One-shots: delay from now, such as PT10M or seconds.")
@schedule_flags.schedule_flags
@click.option("--name", help="New name; none removes it.")
@click.option("--queue", help="Another queue.")
@click.option("--priority", type=int, help="0 (first) to 9 (last).")
@job_flags.job_flags
@json_option
@with_settings("app", "url")
def edit_job(settings: Settings, job: str, as_json: bool, **typed: Any) -> None:
    """Change JOB, given by its id or its name, from now on. Only what is typed changes.

    A one-shot without a name, given by its id, can be changed until its first attempt starts.

    KEY=VALUE changes these arguments and leaves the others. `none` removes an optional value: --end none, --jitter
    none, --calendar none.
    """
    typed = {option: value for option, value in typed.items() if value not in (None, ())}
    if not typed:
        raise click.UsageError("no change given; add one, such as --cron '0 3 * * *'")
    if "payload" in typed and "pairs" in typed:
        raise click.UsageError("give key=value pairs or --payload, not both")
    app = apps.load(settings.app) if settings.app else None

    async def edit(client: AsyncClient) -> None:
        job_id = await job_id_of(client, job)
        version = await amend(client, job_id, lambda before: changed(before, typed, app))
        found = await client.jobs.get(job_id)
        is_once = is_one_shot(found)
        if not as_json:
            say("\n".join([f"job {job_id}: version {version}", *([] if is_once else job_lines(found))]))
        if is_once:  # its run has everything
            await print_run(client, job_id, as_json=as_json)
        elif as_json:
            print_json(job_row(found))

    run_request(settings, edit)


async def amend(client: AsyncClient, job_id: UUID, change: Callable[[JobSpec], JobSpec]) -> int:
    """Change a part of a job, and return its new version. Raises NotFound, DeclaredInCode, Unsettled."""
    for _ in range(_LOOKS_MAX):
        standing = await client.jobs.get(job_id)
        before = _spec_of(standing)
        wanted = change(before)
        if wanted == before:
            return standing.version
        job = compile_recurring(wanted, host_now())  # so that it is refused here, in our words
        try:
            fields = fields_of(job)
            return (await client.jobs.replace(job_id, wanted.target, version=standing.version, **fields)).version
        except VersionChanged:  # a conflict: the typed change is applied to the new version
            continue
    raise Unsettled(f"job {job_id}")


def _spec_of(job: Job) -> JobSpec:
    """Return the spec of a job that the API shows."""
    shown = msgspec.to_builtins(job)
    stated = {name: shown[name] for name in JobSpec.__struct_fields__ if shown.get(name) is not None}
    try:
        return msgspec.convert(stated, JobSpec)
    except msgspec.ValidationError as error:
        raise InvalidOption(
            f"this job cannot be changed with this version of Duly, but with a newer one: {error}"
        ) from None


def changed(spec: JobSpec, typed: dict[str, Any], app: Any | None) -> JobSpec:
    """Return a spec with only the typed fields changed. Raises UsageError, Refused."""
    name = spec.target.handler if isinstance(spec.target, FunctionTarget) else None
    handler = None if app is None or name is None else app.registry.get(name)
    options = NO_OPTIONS if handler is None else handler.options
    fields = job_flags.fields_of(typed, spec.retry or policy_of(options))
    if spec.retry is None and fields.keys() & _POLICY:  # The handler's policy becomes its own.
        rules = rules_of(options)
        spec = msgspec.structs.replace(spec, retry=policy_of(options), timeout=rules["timeout"])
    shape = {ON_EVENT: spec.on_event} if spec.schedule is None else spec.schedule
    schedule = _schedule(shape, typed)
    when = {} if schedule is shape else {"schedule": schedule, "on_event": None}
    return msgspec.structs.replace(spec, payload=_payload(spec, typed, handler), **when, **fields)


def _schedule(shape: Mapping[str, Any], typed: dict[str, Any]) -> Mapping[str, Any]:
    changed = schedule_flags.amend(shape, {key: typed[key] for key in OPTIONS if key in typed})
    if "delay" not in typed:
        return changed
    if "at" in typed:
        raise click.UsageError("give --at or --delay, not both")
    if changed.get("trigger", {}).get("type") != "at":
        raise click.UsageError("a schedule takes no --delay; --every begins with --at, and any other with --start")
    delay = to_iso(check_delay(read_duration(typed["delay"])))
    return {**changed, "trigger": {"type": "at", "delay": delay}}


def _payload(spec: JobSpec, typed: dict[str, Any], handler: Any | None) -> dict[str, Any]:
    if "payload" in typed:
        arguments = read_payload((), typed["payload"], "--payload")
    elif "pairs" in typed:
        arguments = {**spec.payload, **read_payload(typed["pairs"], None)}
    else:
        return spec.payload
    if handler is None:
        return arguments
    checked: dict[str, Any] = msgspec.json.decode(handler.encode((), arguments))
    return checked
