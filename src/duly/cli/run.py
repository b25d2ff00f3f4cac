"""`duly run`: submit for now; with --wait, stay until the result is there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import click
import msgspec

from duly.cli import apps, submission
from duly.cli.desk import Desk, at_desk
from duly.cli.failures import REFUSED
from duly.cli.follow import wait_for_end
from duly.cli.options import with_settings
from duly.cli.output import duration, plain, print_json
from duly.cli.runs import reason
from duly.cli.say import say, say_json
from duly.cli.submission import Typed
from duly.cli.submit import JSON, handler_arguments, output_option
from duly.clock import Rng
from duly.settings import Settings


@click.command
@handler_arguments
@click.option("--wait", is_flag=True, help="Show its log and result; the exit code tells how it ended.")
@output_option
@with_settings("app", "url")
def run(settings: Settings, wait: bool, output: str, **typed: Any) -> int:
    """Submit HANDLER, or another target, for now.

    With --wait the log goes to standard error and the result, as JSON, to standard output. With --output json standard
    output gets one JSON object, and with --wait how it ended is in it, with the result.
    """
    return asyncio.run(_run(settings, wait, output, Typed(**typed)))


async def _run(settings: Settings, wait: bool, output: str, typed: Typed) -> int:
    job = submission.read(typed, apps.load(settings.app) if settings.app else None)
    async with at_desk(settings) as desk:
        sent = await submission.send(desk, job, typed.key, Rng())
        lines = await submission.answer(desk, job, sent, settings.app)
        if output == JSON:
            return await _document(desk, submission.document(job, sent, lines), wait)
        say("\n".join(lines), err=wait)
        return await wait_and_tell(desk, sent.job_id) if wait else 0


async def _document(desk: Desk, made: dict[str, Any], wait: bool) -> int:
    """Print one JSON object: what was accepted and, when it was waited for, what it came to. Gives the exit code."""
    if not wait:
        print_json(made)
        return 0
    found = await _waited_for(desk, made["run_id"])
    last = found["attempts"][-1]
    ended = {"state": found["state"], "reason": found["reason"], "attempts": found["attempt"], "result": last["result"]}
    print_json(plain({**made, **ended}))
    return 0 if found["state"] == "succeeded" else REFUSED


async def wait_and_tell(desk: Desk, run_id: UUID) -> int:
    """Stay until a run has ended: its log goes to standard error, its result to standard output. Gives the exit code."""
    found = await _waited_for(desk, run_id)
    say(ending(found), err=True)
    result = found["attempts"][-1]["result"]
    if found["state"] == "succeeded" and result is not None:
        say_json(msgspec.json.format(result.encode(), indent=2))
    return 0 if found["state"] == "succeeded" else REFUSED


async def _waited_for(desk: Desk, run_id: UUID) -> Mapping[str, Any]:
    try:
        return await wait_for_end(desk, run_id)
    except (KeyboardInterrupt, asyncio.CancelledError):
        say(f"the run goes on without us; to end it: duly runs cancel {run_id}", err=True)
        raise


def ending(found: Mapping[str, Any]) -> str:
    """Say how a run ended."""
    last = found["attempts"][-1]
    took = f" in {duration(last['finished_at'] - last['started_at'])}" if last["started_at"] else ""
    tries = f" after {found['attempt']} attempts" if found["attempt"] > 1 else ""
    words = reason(found["reason"], last["detail"])
    why = f": {words}" if words else ""
    remedy = f"; look at it with `duly runs show {found['run_id']}`" if found["state"] == "dead" else ""
    return f"{found['state']}{took}{tries}{why}{remedy}"
