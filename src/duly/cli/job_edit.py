"""`duly jobs edit`: change a job with a schedule, or a one-shot that still waits; only what is typed changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import click
import msgspec

from duly.cli import apps, gate_flags, schedule_flags
from duly.cli.arguments import read_duration, read_payload
from duly.cli.desk import at_desk
from duly.cli.options import with_settings
from duly.cli.output import json_option, plain, print_json
from duly.cli.retry_flags import changed_retry, retry_flags
from duly.cli.runs import print_run
from duly.cli.say import say
from duly.domain.duration import to_iso
from duly.domain.jobs.job import Recurring, amended, check_delay, check_name, check_priority, check_timeout
from duly.domain.runs import payload as payloads
from duly.domain.runs.expiry import check_expires_after
from duly.domain.runs.options import NO_OPTIONS, RunOptions
from duly.domain.triggers.schedule import options
from duly.settings import Settings

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
    async with at_desk(settings) as desk:
        job_id = await desk.job_id(job)
        version = await desk.amend_job(job_id, lambda before: changed(before, typed, app))
        seen = await desk.job(job_id)
        if not as_json:
            say("\n".join([f"job {job_id}: version {version}", *([] if seen is None else seen.lines)]))
        if seen is None:  # A one-shot: its run says it all.
            await print_run(desk, job_id, as_json=as_json)
        elif as_json:
            print_json(plain(seen.row))


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
