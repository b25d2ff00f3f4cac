"""What a job was: the versions of its definition."""

from __future__ import annotations

import click
import msgspec

from duly.cli.flags.filters import first
from duly.cli.flags.names import job_id_of
from duly.cli.flags.settings import with_settings
from duly.cli.render.job import handler_in
from duly.cli.render.output import Listing, Row, listing_options, show_list
from duly.client.asynchronous.client import AsyncClient
from duly.settings import Settings

COLUMNS = {
    "version": lambda row: row["version"],
    "made": lambda row: row["made_at"],
    "by": lambda row: " ".join(part for part in (row["owner"], row["source"]) if part),
    "request": lambda row: row["request_id"],
    "handler": lambda row: row["handler"],
    "queue": lambda row: row["queue"],
    "when": lambda row: _words(row["schedule"]),
    "payload": lambda row: _json(row["payload"]),
}


@click.command("versions")
@click.argument("job", metavar="JOB")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 101))
@listing_options
@with_settings("url")
def list_versions(settings: Settings, listing: Listing, job: str, limit: int) -> None:
    """Show what JOB, given by its id or its name, was: version by version, the one that stands first."""

    async def read(client: AsyncClient) -> list[Row]:
        found = await first(client.jobs.versions(await job_id_of(client, job)), limit)
        return [
            {
                **msgspec.structs.asdict(one),
                "handler": handler_in(one.target),
                "schedule": one.schedule or msgspec.to_builtins(one.on_event),
            }
            for one in found
        ]

    show_list(settings, listing, read, COLUMNS, "a one-shot has no versions")


def _words(schedule: Row) -> str:
    return _json(schedule.get("trigger", schedule))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
