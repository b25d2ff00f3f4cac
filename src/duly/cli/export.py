"""`duly export` and `duly schema`: the schedules as a file, and what editors need to know of such files."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from duly.cli.connect import opened
from duly.cli.options import with_settings
from duly.cli.output import json_option, print_json
from duly.domain.errors import InvalidOption, NotFound
from duly.domain.job import check_name
from duly.domain.manifest_export import export as exported
from duly.domain.manifest_schema import json_schema
from duly.domain.manifest_shapes import JOBS_MAX
from duly.domain.manifest_text import write_text
from duly.domain.run import TENANT_DEFAULT
from duly.settings import Settings
from duly.store import applied, schedules
from duly.store.database import Database


@click.command("export")
@click.option("--source", metavar="NAME", help="The file whose jobs are written; may be left out when there is one.")
@click.option("--by-hand", is_flag=True, help="With those that were made by hand and have a name.")
@json_option
@with_settings()
def export(settings: Settings, source: str | None, by_hand: bool, as_json: bool) -> None:
    """Write the schedules of a file as that file, in YAML: `duly plan` finds no difference with it.

    With --by-hand the named schedules that people have made are written, too; `duly apply --adopt` makes them the file's.
    Schedules declared in code stay there.
    """
    found = asyncio.run(_export(settings, source, by_hand=by_hand))
    if as_json:
        print_json(found)
    else:
        click.echo(write_text(found), nl=False)


@click.command("schema")
def schema() -> None:
    """Print the JSON schema of a file of schedules, for editors."""
    print_json(json_schema())


async def _export(settings: Settings, source: str | None, *, by_hand: bool) -> dict[str, Any]:
    async with opened(settings) as database:
        chosen = await _source(database, source, by_hand=by_hand)
        jobs = await applied.exported(database, TENANT_DEFAULT, chosen, JOBS_MAX + 1, by_hand=by_hand)
        calendars = await schedules.calendars(database, TENANT_DEFAULT, None)
        unnamed = await applied.unnamed(database, TENANT_DEFAULT) if by_hand else 0
    if len(jobs) > JOBS_MAX:
        raise InvalidOption(f"there are more than {JOBS_MAX} jobs, the limit of a file; export without --by-hand")
    if not jobs:
        raise NotFound(f"no file {chosen!r} has a job here; add --by-hand for the jobs that were made by hand")
    if unnamed:
        click.echo(f"duly: {unnamed} schedules without a name are left out; `duly jobs edit ID --name NAME`", err=True)
    return exported(chosen, jobs, calendars)


async def _source(database: Database, source: str | None, *, by_hand: bool) -> str:
    """Choose the file: the one that was named, or the only one there is."""
    if source is not None:
        return check_name(source, "source")
    known = list(await applied.sources(database, TENANT_DEFAULT))
    if len(known) > 1:
        raise InvalidOption(f"there are several files; name one with --source: {', '.join(known[:10])}")
    if not known and not by_hand:
        raise NotFound("no file has a job here; add --by-hand for the jobs that were made by hand")
    return known[0] if known else "duly"
