"""Following one run: its log as it is written, until it ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from duly.cli.desk import Desk
from duly.cli.patience import about_run
from duly.cli.say import say


async def wait_for_end(desk: Desk, run_id: UUID) -> Mapping[str, Any]:
    """Write a run's log to standard error until it has ended, and give the run."""
    async for line in desk.log(run_id, follow=True):
        say(log_line(line), err=True)
    return await about_run(run_id).ask(lambda: desk.run(run_id))


def log_line(line: Mapping[str, Any]) -> str:
    """Write one line of a run's log for a person."""
    fields: dict[str, Any] = msgspec.json.decode(line["fields"]) if line["fields"] else {}
    words = " ".join(f"{name}={value}" for name, value in fields.items())
    return (
        f"{line['logged_at'].astimezone():%H:%M:%S.%f}"[:-3] + f"  {line['level']:8}{line['message']}  {words}".rstrip()
    )
