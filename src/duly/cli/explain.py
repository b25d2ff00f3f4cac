"""`duly explain`: why a run or a job is where it is."""

from __future__ import annotations

import asyncio

import click
import msgspec

from duly.cli.connect import opened
from duly.cli.options import with_settings
from duly.cli.output import json_option, print_json
from duly.domain.errors import NotFound
from duly.domain.run import TENANT_DEFAULT
from duly.moves.schedule import find_job_id
from duly.settings import Settings
from duly.store import explain as store


@click.command
@click.argument("what", metavar="RUN|JOB")
@json_option
@with_settings()
def explain(settings: Settings, what: str, as_json: bool) -> None:
    """Say why a run, given by its id, or a job, by its id or its name, is where it is: what it waits for, who holds it."""
    asyncio.run(_explain(settings, what, as_json))


async def _explain(settings: Settings, what: str, as_json: bool) -> None:
    async with opened(settings) as database:
        identifier = await find_job_id(database, what)
        found = await store.job_or_run(database, TENANT_DEFAULT, identifier)
    if found is None:
        raise NotFound(f"no run or job {what}; `duly runs` and `duly jobs` list them")
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    click.echo(f"{found.kind} {found.id} is {found.state}")
    for reason in found.reasons:
        click.echo(f"  {reason.text}")
