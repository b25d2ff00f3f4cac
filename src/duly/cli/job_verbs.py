"""What people do to a schedule: pause and resume it, leave one occurrence out, run it now, end it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import click

from duly.cli import apps, job_many
from duly.cli.arguments import read_payload
from duly.cli.desk import Desk, JobSeen, at_desk
from duly.cli.failures import REFUSED
from duly.cli.many import Many, change_many, many_options
from duly.cli.options import with_settings
from duly.cli.output import json_option, print_json
from duly.cli.run import wait_and_tell
from duly.cli.say import say
from duly.clock import Rng
from duly.domain.errors import NotFound
from duly.domain.jobs.job import check_key, check_reason
from duly.domain.runs import payload as payloads
from duly.moves.trigger import TriggerState
from duly.settings import Settings

Change = Callable[[Desk, UUID], Awaitable[str]]

_TRIGGERED = {
    TriggerState.READY: "ready",
    TriggerState.BLOCKED: "waits for the run that is active, as its overlap policy says",
    TriggerState.SKIPPED: "skipped, because a run of this job is active; --beside runs it all the same",
    TriggerState.REPLAYED: "asked for before under this key; nothing new was made",
}


@click.command("pause")
@click.argument("job", metavar="[JOB]", default="")
@many_options("job")
@click.option("--reason", default="paused on request", show_default=True, help="Why, for whoever looks at it.")
@json_option
@with_settings("url")
def pause_job(settings: Settings, job: str, many: Many | None, reason: str, as_json: bool) -> int:
    """Pause JOB, given by its id or its name, or all that fit: it keeps its place, and what it leaves out is on record."""
    why = check_reason(reason)
    if many is not None:
        return change_many(settings, job_many.pausing(why), many, as_json=as_json)
    asyncio.run(_pause(settings, job, why, as_json=as_json))
    return 0


@click.command("resume")
@click.argument("job", metavar="[JOB]", default="")
@many_options("job")
@click.option("--catch-up", is_flag=True, help="Treat what it left out as missed, so that its misfire policy decides.")
@json_option
@with_settings("url")
def resume_job(settings: Settings, job: str, many: Many | None, catch_up: bool, as_json: bool) -> int:
    """Resume JOB, given by its id or its name, or all that fit."""
    if many is not None:
        return change_many(settings, job_many.resuming(catch_up=catch_up), many, as_json=as_json)
    asyncio.run(
        _change(settings, job, lambda desk, job_id: desk.resume_job(job_id, catch_up=catch_up), as_json=as_json)
    )
    return 0


@click.command("skip-next")
@click.argument("job", metavar="JOB")
@json_option
@with_settings("url")
def skip_next_of_job(settings: Settings, job: str, as_json: bool) -> None:
    """Leave the next occurrence of JOB out, and no other."""

    asyncio.run(_change(settings, job, lambda desk, job_id: desk.skip_next(job_id), as_json=as_json))


@click.command("cancel")
@click.argument("job", metavar="[JOB]", default="")
@many_options("job")
@json_option
@with_settings("url")
def cancel(settings: Settings, job: str, many: Many | None, as_json: bool) -> int:
    """Cancel JOB, given by its id or its name, or all that fit, and its runs that have not started.

    What has started goes on: `duly runs cancel` is for that. The answer is `cancelled`; `requested`, where a worker holds the
    last of it; or `too late`, with how it stands: then the exit code is 1.
    """
    if many is not None:
        return change_many(settings, job_many.ENDING, many, as_json=as_json)
    return asyncio.run(_cancel(settings, job, as_json=as_json))


@click.command("delete")
@click.argument("job", metavar="JOB")
@click.option("--purge", is_flag=True, help="Remove its definition, its versions and its history as well.")
@json_option
@with_settings("url")
def delete(settings: Settings, job: str, purge: bool, as_json: bool) -> int:
    """End JOB, given by its id or its name, with its runs that have not started; with --purge, remove it.

    Its history goes in batches, when no run of it is under way any more. What was done to the job stays in the audit.
    """
    return asyncio.run(_cancel(settings, job, as_json=as_json, purge=purge))


@click.command("trigger")
@click.argument("job", metavar="JOB")
@click.option("--payload", metavar="JSON", help="Arguments of its own for this run, as one JSON object.")
@click.option("--beside", is_flag=True, help="Run it even if a run of the job is active.")
@click.option("--key", help="Run it only once under this key, however often it is asked.")
@click.option("--wait", is_flag=True, help="Show its log and result; the exit code tells how it ended.")
@json_option
@with_settings("app", "url")
def trigger_job(
    settings: Settings, job: str, payload: str | None, beside: bool, key: str | None, wait: bool, as_json: bool
) -> int:
    """Run JOB now, given by its id or its name; its schedule is not moved.

    If the app is known (--app, or `app` in duly.toml), the arguments in --payload are checked against the handler before
    anything is written.
    """
    arguments = None if payload is None else read_payload((), payload, "--payload")
    chosen = str(Rng().uuid()) if key is None else check_key(key)
    return asyncio.run(_trigger(settings, job, arguments, beside, chosen, wait, as_json))


async def _cancel(settings: Settings, job: str, *, as_json: bool, purge: bool = False) -> int:
    async with at_desk(settings) as desk:
        job_id = await desk.job_id(job)
        stopped = await desk.cancel_job(job_id, purge=purge)
    if as_json:
        purged = {"purged": True} if purge else {}
        print_json(
            {
                "job_id": job_id,
                "answer": stopped.answer,
                "state": stopped.state,
                "may_start": stopped.may_start,
                **purged,
            }
        )
    else:
        words = f"job {job_id}: purged" if purge else f"job {job_id}: {stopped.words}"
        say("\n".join([words, *_may_start(stopped.may_start)]))
    return REFUSED if stopped.is_too_late and not purge else 0


async def _pause(settings: Settings, job: str, reason: str, *, as_json: bool) -> None:
    async with at_desk(settings) as desk:
        job_id = await desk.job_id(job)
        paused = await desk.pause_job(job_id, reason)
        seen = await desk.job(job_id)
    if as_json:
        print_json({"job_id": job_id, "answer": paused.answer, **_state(seen), "may_start": paused.may_start})
    else:
        fires = seen.fires if seen else []
        say("\n".join([f"job {job_id}: {paused.answer}", *_may_start(paused.may_start), *fires]))


def _may_start(run_ids: Sequence[UUID]) -> list[str]:
    return [f"  run {run_id} may still start; `duly runs cancel {run_id}` prevents it" for run_id in run_ids]


async def _change(settings: Settings, job: str, change: Change, *, as_json: bool) -> None:
    """Change a job, and say what became of it and when it fires now."""
    async with at_desk(settings) as desk:
        job_id = await desk.job_id(job)
        answer = (await change(desk, job_id)).replace("_", " ")
        seen = await desk.job(job_id)
    if as_json:
        print_json({"job_id": job_id, "answer": answer, **_state(seen)})
    else:
        say("\n".join([f"job {job_id}: {answer}", *(seen.fires if seen else [])]))


def _state(seen: JobSeen | None) -> dict[str, Any]:
    return {} if seen is None else {"state": seen.row["state"], "next_run_at": seen.row["next_run_at"]}


async def _trigger(
    settings: Settings, job: str, arguments: dict[str, Any] | None, beside: bool, key: str, wait: bool, as_json: bool
) -> int:
    app = None if arguments is None or not settings.app else apps.load(settings.app)
    async with at_desk(settings) as desk:
        job_id = await desk.job_id(job)
        seen = await desk.job(job_id)
        if seen is None:
            raise NotFound(f"no schedule {job_id}; `duly jobs` lists them")
        body = None if arguments is None else _body(arguments, seen.row["handler"], app)
        run_id, state = await desk.trigger(job_id, seen.row["queue"], body, beside=beside, key=key)
        if as_json:
            print_json({"job_id": job_id, "run_id": run_id, "state": state})
        else:
            say(f"run {run_id}: {_TRIGGERED[TriggerState(state)]}", err=wait)
        if state == TriggerState.SKIPPED:
            return REFUSED
        return await wait_and_tell(desk, run_id) if wait else 0


def _body(arguments: dict[str, Any], name: str, app: Any | None) -> str:
    """Write the arguments; a handler that is known here checks them by its annotations."""
    handler = None if app is None else app.registry.get(name)
    text: str = payloads.encode(arguments, "the payload") if handler is None else handler.encode((), arguments)
    return text
