"""`duly logs`: the log of a run."""

from __future__ import annotations

from uuid import UUID

import click

from duly.cli.client import with_client
from duly.cli.commands.runs.patience import say_waiting
from duly.cli.commands.runs.runs import reason
from duly.cli.render.output import print_json
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.wire.runs import LogLine


@click.command
@click.argument("run_id", metavar="RUN", type=click.UUID)
@click.option("-f", "--follow", is_flag=True, help="Stay until the run has ended.")
@with_client()
async def logs(client: AsyncClient, run_id: UUID, follow: bool, as_json: bool) -> None:
    """Show what RUN logged, over all its attempts; with --json one object a line."""
    is_silent = True
    followed = client.runs.follow_logs(run_id, on_silence=say_waiting)
    async for line in followed if follow else client.runs.logs(run_id):
        if as_json:
            print_json(line, is_one_line=True)
        else:
            say(log_line(line))
        is_silent = False
    if is_silent:
        found = await client.runs.get(run_id)
        why = reason(found.reason, found.attempts[-1].detail if found.attempts else None)
        say(f"it logged nothing; it is {found.state}{f': {why}' if why else ''}", err=True)


def log_line(line: LogLine) -> str:
    """Write one line of a run's log for a person."""
    words = " ".join(f"{name}={value}" for name, value in (line.fields or {}).items())
    return f"{line.logged_at.astimezone():%H:%M:%S.%f}"[:-3] + f"  {line.level:8}{line.message}  {words}".rstrip()
