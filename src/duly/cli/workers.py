"""`duly workers`: who lives."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from duly.cli.options import with_settings
from duly.cli.output import Listing, Row, listing_options, show_list
from duly.settings import Settings
from duly.store import workers as store
from duly.store.database import Database

COLUMNS = {
    "id": lambda row: row["worker_id"],
    "name": lambda row: row["name"],
    "version": lambda row: row["version"],
    "queues": lambda row: row["queues"],
    "handlers": lambda row: row["handlers"],
    "slots": lambda row: row["slots"],
    "up for": lambda row: row["read_at"] - row["started_at"],
    "lease": lambda row: row["until"] - row["read_at"] if row["until"] > row["read_at"] else "expired",
}


@click.command
@listing_options
@with_settings()
def workers(settings: Settings, listing: Listing) -> None:
    """List the workers that live, what they serve and how long their lease still holds."""

    async def read(database: Database) -> Sequence[Row]:
        return [msgspec.structs.asdict(row) for row in await store.live(database)]

    show_list(settings, listing, read, COLUMNS, "no worker lives; start one: duly worker module:app")
