"""`duly export` and `duly schema`: the schedules as a file, and what editors need to know of such files."""

from __future__ import annotations

import asyncio

import click

from duly.cli.desk import Exported, at_desk
from duly.cli.options import with_settings
from duly.cli.output import json_option, print_json
from duly.cli.say import say
from duly.domain.jobs.manifest_schema import json_schema
from duly.domain.jobs.manifest_text import write_text
from duly.settings import Settings


@click.command("export")
@click.option("--source", metavar="NAME", help="The file whose jobs are written; may be left out when there is one.")
@click.option("--by-hand", is_flag=True, help="With those that were made by hand and have a name.")
@json_option
@with_settings("url")
def export(settings: Settings, source: str | None, by_hand: bool, as_json: bool) -> None:
    """Write the schedules of a file as that file, in YAML: `duly plan` finds no difference with it.

    With --by-hand the named schedules that people have made are written, too; `duly apply --adopt` makes them the file's.
    Schedules declared in code stay there.
    """
    found = asyncio.run(_export(settings, source, by_hand=by_hand))
    for note in found.notes:
        say(f"duly: {note}", err=True)
    if as_json:
        print_json(found.document)
    else:
        say(write_text(found.document), nl=False)


@click.command("schema")
def schema() -> None:
    """Print the JSON schema of a file of schedules, for editors."""
    print_json(json_schema())


async def _export(settings: Settings, source: str | None, *, by_hand: bool) -> Exported:
    async with at_desk(settings) as desk:
        return await desk.export(source, by_hand=by_hand)
