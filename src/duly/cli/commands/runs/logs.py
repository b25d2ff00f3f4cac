"""`duly logs`: what a run said."""

from __future__ import annotations

import asyncio
from uuid import UUID

import click

from duly.cli.client import connected
from duly.cli.commands.runs.follow import log_line
from duly.cli.commands.runs.patience import say_waiting
from duly.cli.commands.runs.runs import reason
from duly.cli.flags.settings import with_settings
from duly.cli.render.output import json_option, print_json
from duly.cli.render.say import say
from duly.settings import Settings


@click.command
@click.argument("run_id", metavar="RUN", type=click.UUID)
@click.option("-f", "--follow", is_flag=True, help="Stay until the run has ended.")
@json_option
@with_settings("url")
def logs(settings: Settings, run_id: UUID, follow: bool, as_json: bool) -> None:
    """Show what RUN logged, over all its attempts; with --json one object a line."""
    asyncio.run(_logs(settings, run_id, follow, as_json))


async def _logs(settings: Settings, run_id: UUID, follow: bool, as_json: bool) -> None:
    async with connected(settings) as client:
        is_silent = True
        followed = client.runs.follow_logs(run_id, on_silence=say_waiting)
        async for line in followed if follow else client.runs.logs(run_id):
            if as_json:
                print_json(line, is_one_line=True)
            else:
                say(log_line(line))
            is_silent = False
        found = await client.runs.get(run_id) if is_silent else None
    if found is not None:
        why = reason(found.reason, found.attempts[-1].detail if found.attempts else None)
        say(f"it logged nothing; it is {found.state}{f': {why}' if why else ''}", err=True)
