"""`duly files`: which files of schedules were applied, by whom, and what was changed by hand since."""

from __future__ import annotations

import click
import msgspec

from duly.cli.client import ask
from duly.cli.failures import REFUSED
from duly.cli.flags.settings import with_settings
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Listing, Row, json_option, listing_options, print_rows, show_list
from duly.cli.render.plan import difference_text
from duly.client.asynchronous.client import AsyncClient
from duly.domain.jobs.manifest_diff import Difference
from duly.settings import Settings
from duly.wire.pages import PAGE_SIZE_MAX

_EMPTY = "no file was applied; write one and apply it: duly apply -f duly.yaml"
COLUMNS = {
    "file": lambda row: row["source"],
    "jobs": lambda row: row["jobs"],
    "changed since": lambda row: row["drifted"],
    "applied at": lambda row: row["applied_at"],
    "by": lambda row: row["applied_by"],
}


def _text(told: msgspec.Struct) -> str:
    return difference_text(msgspec.convert(msgspec.to_builtins(told), Difference))


JOB_COLUMNS = {
    "name": lambda row: row["name"],
    "state": lambda row: row["status"],
    "drift": lambda row: row["drift"],
    "version": lambda row: f"{row['version']}, applied {row['applied_version']}",
    "changed at": lambda row: row["changed_at"],
    "what": lambda row: "; ".join(_text(one) for one in row["differences"]),
}


@click.group(cls=ListingGroup)
def files() -> None:
    """Show which files of schedules were applied, by whom, and what was changed since. Without a command: list."""


@files.command("list")
@listing_options
@with_settings("url")
def list_files(settings: Settings, listing: Listing) -> None:
    """List the files that were applied, and how many jobs of each were changed by hand since."""

    async def read(client: AsyncClient) -> list[Row]:
        return [msgspec.structs.asdict(one) async for one in client.files.list(page_size=PAGE_SIZE_MAX)]

    show_list(settings, listing, read, COLUMNS, _EMPTY)


@files.command("show")
@click.argument("source", metavar="FILE")
@click.option("--drifted", is_flag=True, help="Only those that were changed or ended by hand since.")
@click.option("--check", is_flag=True, help="Exit with 1 when one was.")
@json_option
@with_settings("url")
def show(settings: Settings, source: str, drifted: bool, check: bool, as_json: bool) -> int:
    """Show the jobs of a file, named by its `source`, and in what each is no longer as it was applied."""

    async def read(client: AsyncClient) -> list[Row]:
        found = client.files.jobs(source, drifted=drifted, page_size=PAGE_SIZE_MAX)
        return [msgspec.structs.asdict(one) async for one in found]

    rows = ask(settings, read)
    empty = "every job is as it was applied" if drifted else "no job of it is left"
    print_rows(rows, JOB_COLUMNS, empty, as_json=as_json)
    return REFUSED if check and any(row["drift"] for row in rows) else 0
