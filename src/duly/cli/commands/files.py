"""`duly files`: the applied files of schedules, who applied them, and their drift."""

from __future__ import annotations

import click
import msgspec

from duly.cli.client import lists, with_client
from duly.cli.failures import REFUSED
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Columns, print_rows
from duly.cli.render.plan import difference_text
from duly.client.asynchronous.client import AsyncClient
from duly.domain.jobs.manifest_diff import Difference
from duly.wire.jobs.manifests import FileSummary
from duly.wire.pages import PAGE_SIZE_MAX

COLUMNS: Columns = {
    "file": "source",
    "jobs": "jobs",
    "rules": "rules",
    "changed since": lambda file: file.drifted + file.drifted_rules,
    "applied at": "applied_at",
    "by": "applied_by",
}


def _text(difference: msgspec.Struct) -> str:
    return difference_text(msgspec.convert(msgspec.to_builtins(difference), Difference))


JOB_COLUMNS: Columns = {
    "name": "name",
    "state": "status",
    "drift": "drift",
    "version": lambda job: f"{job.version}, applied {job.applied_version}",
    "changed at": "changed_at",
    "what": lambda job: "; ".join(_text(one) for one in job.differences),
}


@click.group(cls=ListingGroup)
def files() -> None:
    """Show the applied files of schedules, who applied them, and their drift. Without a command: list."""


@files.command("list")
@lists(COLUMNS, "no file was applied; write one and apply it: duly apply -f duly.yaml")
async def list_files(client: AsyncClient) -> list[FileSummary]:
    """List the applied files, and how many jobs and rules of each have drifted."""
    return [file async for file in client.files.list(page_size=PAGE_SIZE_MAX)]


@files.command("show")
@click.argument("source", metavar="FILE")
@click.option("--drifted", is_flag=True, help="Only jobs changed or ended by hand since.")
@click.option("--check", is_flag=True, help="Exit with 1 if there is one.")
@with_client()
async def show(client: AsyncClient, source: str, drifted: bool, check: bool, as_json: bool) -> int:
    """Show the jobs of a file, named by its `source`, and the drift of each."""
    found = [job async for job in client.files.jobs(source, drifted=drifted, page_size=PAGE_SIZE_MAX)]
    empty = "every job is as it was applied" if drifted else "no job of it is left"
    print_rows(found, JOB_COLUMNS, empty, as_json=as_json)
    return REFUSED if check and any(job.drift for job in found) else 0
