"""Actions on a schedule: pause and resume it, skip one occurrence, run it now, end it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

import click
import msgspec

from duly.cli.client import run_request, with_client
from duly.cli.commands.runs.run import wait_and_print
from duly.cli.commands.runs.runs import cancel_words
from duly.cli.failures import REFUSED
from duly.cli.flags import apps
from duly.cli.flags.arguments import read_payload
from duly.cli.flags.bulk import Many, Verb, change_many, many_options
from duly.cli.flags.names import job_id_of
from duly.cli.flags.settings import with_settings
from duly.cli.render.job import fire_lines
from duly.cli.render.output import answer, json_option, moment, print_json
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.clock import Rng
from duly.domain.jobs.filter import JOBS
from duly.domain.jobs.job import check_key, check_reason
from duly.domain.runs import payload as payloads
from duly.settings import Settings
from duly.wire.jobs.jobs import Job
from duly.wire.jobs.verbs import JobStatus

_TRIGGERED = {
    "ready": "ready",
    "blocked": "waits for the run that is active, as its overlap policy says",
    "skipped_overlap": "skipped, because a run of this job is active; --allow-overlap runs it all the same",
    "replayed": "requested before under this key; nothing new was created",
}


@click.command("pause")
@click.argument("job", metavar="[JOB]", default="")
@many_options("job")
@click.option("--reason", default="paused on request", show_default=True, help="Reason, shown with the pause.")
@with_client()
async def pause_job(client: AsyncClient, job: str, many: Many | None, reason: str, as_json: bool) -> int:
    """Pause JOB, given by its id or its name, or all that match: the occurrences it skips are recorded."""
    why = check_reason(reason)
    if many is not None:
        verb = Verb("Pause", "paused", "job", JOBS, partial(client.jobs.pause_many, reason=why))
        return await change_many(verb, many, as_json=as_json)
    job_id = await job_id_of(client, job)
    paused = await client.jobs.pause(job_id, reason=why)
    await _print_status(client, job_id, _changed(paused), paused.may_start, as_json=as_json)
    return 0


@click.command("resume")
@click.argument("job", metavar="[JOB]", default="")
@many_options("job")
@click.option(
    "--catch-up", is_flag=True, help="Treat skipped occurrences as missed, so that the misfire policy applies."
)
@with_client()
async def resume_job(client: AsyncClient, job: str, many: Many | None, catch_up: bool, as_json: bool) -> int:
    """Resume JOB, given by its id or its name, or all that match."""
    if many is not None:
        verb = Verb("Resume", "resumed", "job", JOBS, partial(client.jobs.resume_many, catch_up=catch_up))
        return await change_many(verb, many, as_json=as_json)
    job_id = await job_id_of(client, job)
    await _print_status(client, job_id, _changed(await client.jobs.resume(job_id, catch_up=catch_up)), as_json=as_json)
    return 0


@click.command("skip-next")
@click.argument("job", metavar="JOB")
@with_client()
async def skip_next_of_job(client: AsyncClient, job: str, as_json: bool) -> None:
    """Skip the next occurrence of JOB, and no other."""
    job_id = await job_id_of(client, job)
    skipped = await client.jobs.skip_next(job_id)
    await _print_status(client, job_id, f"leaves out {moment(skipped.scheduled_at)}", as_json=as_json)


@click.command("cancel")
@click.argument("job", metavar="[JOB]", default="")
@many_options("job")
@with_client()
async def cancel(client: AsyncClient, job: str, many: Many | None, as_json: bool) -> int:
    """Cancel JOB, given by its id or its name, or all that match, and its runs that have not started.

    Started runs go on: `duly runs cancel` is for them. The answer is `cancelled`; `requested`, where a worker holds the
    last run; or `too late`, with its status: then the exit code is 1.
    """
    if many is not None:
        verb = Verb("Cancel", "cancelled", "job", JOBS, client.jobs.delete_many)
        return await change_many(verb, many, as_json=as_json)
    return await _cancel(client, job, as_json=as_json)


@click.command("delete")
@click.argument("job", metavar="JOB")
@click.option("--purge", is_flag=True, help="Delete its definition, versions and history as well.")
@with_client()
async def delete(client: AsyncClient, job: str, purge: bool, as_json: bool) -> int:
    """End JOB, given by its id or its name, with its runs that have not started; with --purge, remove it.

    Its history is removed in batches, when no run of it is active any more. Its audit entries stay.
    """
    return await _cancel(client, job, as_json=as_json, purge=purge)


@click.command("trigger")
@click.argument("job", metavar="JOB")
@click.option("--payload", metavar="JSON", help="Arguments for this run, as one JSON object.")
@click.option("--allow-overlap", is_flag=True, help="Run it even if a run of the job is active.")
@click.option("--key", help="Idempotency key: repeated requests run it once.")
@click.option("--wait", is_flag=True, help="Show its log and result; the exit code is that of its outcome.")
@json_option
@with_settings("app", "url")
def trigger_job(
    settings: Settings, job: str, payload: str | None, allow_overlap: bool, key: str | None, wait: bool, as_json: bool
) -> int:
    """Run JOB now, given by its id or its name; its schedule is not moved.

    If the app is known (--app, or `app` in duly.toml), the arguments in --payload are checked against the handler before
    anything is written.
    """
    arguments = None if payload is None else read_payload((), payload, "--payload")
    chosen = str(Rng().uuid()) if key is None else check_key(key)
    app = None if arguments is None or not settings.app else apps.load(settings.app)

    async def run(client: AsyncClient) -> int:
        job_id = await job_id_of(client, job)
        given = None if arguments is None else _checked(arguments, await client.jobs.get(job_id), app)
        created = await client.jobs.trigger(job_id, payload=given, allow_overlap=allow_overlap, key=chosen)
        if as_json:
            print_json({"job_id": job_id, "run_id": created.run_id, "state": created.state})
        else:
            say(f"run {created.run_id}: {_TRIGGERED[created.state]}", err=wait)
        if created.state == "skipped_overlap":
            return REFUSED
        return await wait_and_print(client, created.run_id) if wait else 0

    return run_request(settings, run)


async def _cancel(client: AsyncClient, job: str, *, as_json: bool, purge: bool = False) -> int:
    ended = await client.jobs.delete(await job_id_of(client, job), purge=purge)
    purged = {"purged": True} if purge else {}
    document = {"job_id": ended.job_id, "answer": ended.status, "state": ended.state, "may_start": ended.may_start}
    words = "purged" if purge else cancel_words(ended.status, ended.state)
    answer(as_json, document | purged, f"job {ended.job_id}: {words}", *_may_start(ended.may_start))
    return REFUSED if ended.status == "too_late" and not purge else 0


async def _print_status(
    client: AsyncClient, job_id: UUID, done: str, may_start: Sequence[UUID] | None = None, *, as_json: bool
) -> None:
    """Print the result of an action and the job's next fire."""
    found = await client.jobs.get(job_id)
    document = {"job_id": job_id, "answer": done, "state": found.status, "next_run_at": found.next_run_at}
    runs = {} if may_start is None else {"may_start": may_start}
    answer(as_json, document | runs, f"job {job_id}: {done}", *_may_start(may_start or ()), *fire_lines(found))


def _changed(status: JobStatus) -> str:
    return status.status.replace("_", " ") if status.changed else "already"


def _may_start(run_ids: Sequence[UUID]) -> list[str]:
    return [f"  run {run_id} may still start; `duly runs cancel {run_id}` prevents it" for run_id in run_ids]


def _checked(arguments: dict[str, Any], found: Job, app: Any | None) -> dict[str, Any]:
    """Check the arguments; a handler that is known here does it by its annotations, and returns them decoded."""
    handler = None if app is None else app.registry.get(found.target.handler)
    text = payloads.encode(arguments, "the payload") if handler is None else handler.encode((), arguments)
    return msgspec.json.decode(text, type=dict[str, Any])
