"""`duly jobs moved`: the next fires that new time zone data has moved."""

from __future__ import annotations

import click
import msgspec

from duly.cli.flags.names import job_id_of
from duly.cli.flags.settings import with_settings
from duly.cli.render.output import Listing, Row, listing_options, show_list
from duly.client.asynchronous.client import AsyncClient
from duly.settings import Settings

COLUMNS = {
    "job": lambda row: row["job_id"],
    "name": lambda row: row["name"],
    "was": lambda row: row["was_at"],
    "next": lambda row: row["next_at"] or "nothing left",
    "tzdb": lambda row: row["tzdb"],
    "moved": lambda row: row["moved_at"],
}


@click.command("moved")
@click.argument("job", metavar="[JOB]", required=False)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@listing_options
@with_settings("url")
def list_moved(settings: Settings, listing: Listing, job: str | None, limit: int) -> None:
    """List the next fires, of JOB or of all, that new time zone data has moved by more than a minute, the newest first."""

    async def read(client: AsyncClient) -> list[Row]:
        job_id = None if job is None else await job_id_of(client, job)
        return [msgspec.structs.asdict(one) for one in await client.jobs.moved_fires(job_id, limit=limit)]

    show_list(settings, listing, read, COLUMNS, "no next fire was moved by new time zone data")
