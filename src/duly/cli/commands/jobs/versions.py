"""Versions of a job's definition, and the next fires that new time zone data has moved."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from duly.cli.client import lists
from duly.cli.flags.filters import first, limit_option
from duly.cli.flags.names import job_id_of
from duly.cli.render.job import handler_in
from duly.cli.render.output import Columns, Row
from duly.client.asynchronous.client import AsyncClient
from duly.wire.jobs.versions import MovedFire

COLUMNS = {
    "version": lambda row: row["version"],
    "created": lambda row: row["created_at"],
    "by": lambda row: " ".join(part for part in (row["owner"], row["source"]) if part),
    "request": lambda row: row["request_id"],
    "handler": lambda row: row["handler"],
    "queue": lambda row: row["queue"],
    "when": lambda row: _json(row["schedule"].get("trigger", row["schedule"])),
    "payload": lambda row: _json(row["payload"]),
}
MOVED_COLUMNS: Columns = {
    "job": "job_id",
    "name": "name",
    "was": "was_at",
    "next": lambda fire: fire.next_at or "nothing left",
    "tzdb": "tzdb",
    "moved": "moved_at",
}


@click.command("versions")
@click.argument("job", metavar="JOB")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 101))
@lists(COLUMNS, "a one-shot has no versions")
async def list_versions(client: AsyncClient, job: str, limit: int) -> list[Row]:
    """Show the versions of JOB, given by its id or its name, the current one first."""
    found = await first(client.jobs.versions(await job_id_of(client, job)), limit)
    return [
        {
            **msgspec.structs.asdict(one),
            "handler": handler_in(one.target),
            "schedule": one.schedule or msgspec.to_builtins(one.on_event),
        }
        for one in found
    ]


@click.command("moved")
@click.argument("job", metavar="[JOB]", required=False)
@limit_option
@lists(MOVED_COLUMNS, "no next fire was moved by new time zone data")
async def list_moved(client: AsyncClient, job: str | None, limit: int) -> Sequence[MovedFire]:
    """List the next fires, of JOB or of all, that new time zone data has moved by more than a minute, the newest first."""
    return await client.jobs.moved_fires(None if job is None else await job_id_of(client, job), limit=limit)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
