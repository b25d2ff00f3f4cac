"""`duly export` and `duly schema`: the schedules as a file, and the JSON schema of such files."""

from __future__ import annotations

import click

from duly.cli.client import with_client
from duly.cli.render.output import print_json
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.domain.counting import some
from duly.domain.jobs.manifest_schema import json_schema
from duly.domain.jobs.manifest_text import write_text
from duly.wire.pages import PAGE_SIZE_MAX


@click.command("export")
@click.option("--source", metavar="NAME", help="Source of the file to export; optional if there is only one.")
@click.option("--by-hand", is_flag=True, help="Include named jobs and rules that were created by hand.")
@with_client()
async def export(client: AsyncClient, source: str | None, by_hand: bool, as_json: bool) -> None:
    """Write the jobs and notification rules of a file as that file, in YAML: `duly plan` finds no difference with it.

    With --by-hand the named jobs and the rules that people have made are written, too; `duly apply --adopt` makes them
    the file's. Jobs declared in code stay there.
    """
    document = await client.jobs.export(source, by_hand=by_hand)
    if by_hand:
        await _note_unnamed(client)
    if as_json:
        print_json(document)
    else:
        say(write_text(document), nl=False)


@click.command("schema")
def schema() -> None:
    """Print the JSON schema of a file of schedules, for editors."""
    print_json(json_schema())


async def _note_unnamed(client: AsyncClient) -> None:
    """Print how many schedules have no name, and are left out."""
    by_hand = client.jobs.list("owner:api AND state:(active,paused)", page_size=PAGE_SIZE_MAX)
    if unnamed := sum([job.name is None async for job in by_hand]):
        are = "is" if unnamed == 1 else "are"
        note = f"{some(unnamed, 'schedule')} without a name {are} left out; `duly jobs edit ID --name NAME`"
        say(f"duly: {note}", err=True)
