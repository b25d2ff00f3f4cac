"""Following one run: its log as it is written, until it ends."""

from __future__ import annotations

from uuid import UUID

from duly.cli.commands.runs.patience import about_run, say_waiting
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.wire.runs import LogLine, Run


async def wait_for_end(client: AsyncClient, run_id: UUID) -> Run:
    """Write a run's log to standard error until it has ended, and give the run."""
    async for line in client.runs.follow_logs(run_id, on_silence=say_waiting):
        say(log_line(line), err=True)
    return await about_run(run_id).ask(lambda: client.runs.get(run_id))


def log_line(line: LogLine) -> str:
    """Write one line of a run's log for a person."""
    words = " ".join(f"{name}={value}" for name, value in (line.fields or {}).items())
    return f"{line.logged_at.astimezone():%H:%M:%S.%f}"[:-3] + f"  {line.level:8}{line.message}  {words}".rstrip()
