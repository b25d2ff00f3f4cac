"""`duly run`: submit for now; with --wait, wait for the result."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import click

from duly.cli.client import run_request
from duly.cli.commands.runs.logs import log_line
from duly.cli.commands.runs.patience import about_run, say_waiting
from duly.cli.commands.runs.runs import reason
from duly.cli.commands.submit import JSON, handler_arguments, output_option
from duly.cli.failures import REFUSED
from duly.cli.flags import apps, submission
from duly.cli.flags.settings import with_settings
from duly.cli.render.output import duration, print_json
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.settings import Settings
from duly.wire.runs import Run


@click.command
@handler_arguments
@click.option("--wait", is_flag=True, help="Show its log and result; the exit code is that of its outcome.")
@output_option
@with_settings("app", "url")
def run(settings: Settings, wait: bool, output: str, **typed: Any) -> int:
    """Submit HANDLER, or another target, for now.

    With --wait the log goes to standard error and the result, as JSON, to standard output. With --output json standard
    output gets one JSON object, which with --wait includes the outcome and the result.
    """
    job = submission.read(typed, apps.load(settings.app) if settings.app else None)

    async def submit(client: AsyncClient) -> int:
        sent = await submission.send(client, job, typed["key"])
        lines = await submission.answer(client, job, sent, settings.app)
        if output == JSON:
            return await _document(client, submission.document(job, sent, lines), wait)
        say("\n".join(lines), err=wait)
        return await wait_and_print(client, sent.job_id) if wait else 0

    return run_request(settings, submit)


async def _document(client: AsyncClient, created: dict[str, Any], wait: bool) -> int:
    """Print one JSON object: the accepted run and, after waiting, its outcome. Returns the exit code."""
    if not wait:
        print_json(created)
        return 0
    found = await _waited_for(client, created["run_id"])
    result = found.attempts[-1].result
    print_json({**created, "state": found.state, "reason": found.reason, "attempts": found.attempt, "result": result})
    return 0 if found.state == "succeeded" else REFUSED


async def wait_and_print(client: AsyncClient, run_id: UUID) -> int:
    """Wait until a run has ended: its log goes to standard error, its result to standard output. Returns the exit code."""
    found = await _waited_for(client, run_id)
    say(ending(found), err=True)
    result = found.attempts[-1].result
    if found.state == "succeeded" and result is not None:
        print_json(result)
    return 0 if found.state == "succeeded" else REFUSED


async def _waited_for(client: AsyncClient, run_id: UUID) -> Run:
    """Write a run's log to standard error until it has ended, and return the run."""
    try:
        async for line in client.runs.follow_logs(run_id, on_silence=say_waiting):
            say(log_line(line), err=True)
        return await about_run(run_id).until_answered(lambda: client.runs.get(run_id))
    except (KeyboardInterrupt, asyncio.CancelledError):
        say(f"the run goes on without us; to end it: duly runs cancel {run_id}", err=True)
        raise


def ending(found: Run) -> str:
    """Describe how a run ended."""
    last = found.attempts[-1]
    elapsed = f" in {duration(last.finished_at - last.started_at)}" if last.started_at else ""
    tries = f" after {found.attempt} attempts" if found.attempt > 1 else ""
    words = reason(found.reason, last.detail)
    why = f": {words}" if words else ""
    remedy = f"; look at it with `duly runs show {found.run_id}`" if found.state == "dead" else ""
    return f"{found.state}{elapsed}{tries}{why}{remedy}"
