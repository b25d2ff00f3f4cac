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
from duly.cli.output import duration
from duly.cli.runs import reason
from duly.cli.say import say, say_json
from duly.cli.submission import Typed
from duly.cli.submit import handler_arguments
from duly.clock import Rng
from duly.settings import Settings


@click.command
@handler_arguments
@click.option("--wait", is_flag=True, help="Show its log and result; the exit code tells how it ended.")
@with_settings("app", "url")
def run(settings: Settings, wait: bool, **typed: Any) -> int:
    """Submit HANDLER, or another target, for now.

    With --wait the log goes to standard error and the result, as JSON, to standard output.
    """
    return asyncio.run(_run(settings, wait, Typed(**typed)))


async def _run(settings: Settings, wait: bool, typed: Typed) -> int:
    job = submission.read(typed, apps.load(settings.app) if settings.app else None)
    async with at_desk(settings) as desk:
        sent = await submission.send(desk, job, typed.key, Rng())
        lines = await submission.answer(desk, job, sent, settings.app)
        say("\n".join(lines), err=wait)
        return await wait_and_tell(desk, sent.job_id) if wait else 0


async def wait_and_tell(desk: Desk, run_id: UUID) -> int:
    """Stay until a run has ended: its log goes to standard error, its result to standard output. Gives the exit code."""
    try:
        found = await wait_for_end(desk, run_id)
    except (KeyboardInterrupt, asyncio.CancelledError):
        say(f"the run goes on without us; to end it: duly runs cancel {run_id}", err=True)
        raise
    say(ending(found), err=True)
    result = found["attempts"][-1]["result"]
    if found["state"] == "succeeded" and result is not None:
        say_json(msgspec.json.format(result.encode(), indent=2))
    return 0 if found["state"] == "succeeded" else REFUSED


def ending(found: Mapping[str, Any]) -> str:
    """Say how a run ended."""
    last = found["attempts"][-1]
    took = f" in {duration(last['finished_at'] - last['started_at'])}" if last["started_at"] else ""
    tries = f" after {found['attempt']} attempts" if found["attempt"] > 1 else ""
    words = reason(found["reason"], last["detail"])
    why = f": {words}" if words else ""
    remedy = f"; look at it with `duly runs show {found['run_id']}`" if found["state"] == "dead" else ""
    return f"{found['state']}{took}{tries}{why}{remedy}"
