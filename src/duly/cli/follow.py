"""Following one run: its log as it is written, until it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import UUID

import click
import msgspec

from duly.domain.errors import NotFound
from duly.store import runs
from duly.store.database import Database

_LOOK_SECONDS_MIN, _LOOK_SECONDS_MAX = 0.02, 0.5
# Workers write log lines in batches, so the last ones come a moment after the outcome.
_LINGER_SECONDS = 0.7
_START = (0, -1)


async def log_lines(database: Database, run_id: UUID, *, until_final: bool) -> AsyncIterator[str]:
    """Give a run's log lines in order; with `until_final`, wait for more until the run has ended. Raises NotFound."""
    after, pause, ends_at = _START, _LOOK_SECONDS_MIN, float("inf")
    while True:
        is_final = await _is_final(database, run_id)
        lines = await runs.read_logs(database, run_id, after)
        for line in lines:
            after = (line["attempt"], line["number"])
            yield log_line(line)
        if is_final:
            ends_at = min(ends_at, database.clock.monotonic() + _LINGER_SECONDS)
        if not lines and (not until_final or database.clock.monotonic() > ends_at):
            return
        pause = _LOOK_SECONDS_MIN if lines else min(_LOOK_SECONDS_MAX, pause * 1.5)
        await database.clock.sleep(min(pause, _LOOK_SECONDS_MIN) if is_final else pause)


async def _is_final(database: Database, run_id: UUID) -> bool:
    found = await runs.find(database, run_id)
    if found is None:
        raise NotFound(f"no run {run_id}; `duly runs` lists them")
    return found["state"] in runs.FINAL


async def wait_for_end(database: Database, run_id: UUID) -> Mapping[str, Any]:
    """Write a run's log to standard error until it has ended, and give the run."""
    async for line in log_lines(database, run_id, until_final=True):
        click.echo(line, err=True)
    found = await runs.find(database, run_id)
    assert found is not None
    return found


def log_line(line: Mapping[str, Any]) -> str:
    """Write one line of a run's log for a person."""
    fields: dict[str, Any] = msgspec.json.decode(line["fields"]) if line["fields"] else {}
    words = " ".join(f"{name}={value}" for name, value in fields.items())
    return (
        f"{line['logged_at'].astimezone():%H:%M:%S.%f}"[:-3] + f"  {line['level']:8}{line['message']}  {words}".rstrip()
    )
