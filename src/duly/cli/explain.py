"""`duly explain`: why a run or a job is where it is."""

from __future__ import annotations

import asyncio

import click

from duly.cli.desk import at_desk
from duly.cli.options import with_settings
from duly.cli.output import json_option, moment, print_json
from duly.cli.say import say
from duly.settings import Settings


@click.command
@click.argument("what", metavar="RUN|JOB")
@json_option
@with_settings("url")
def explain(settings: Settings, what: str, as_json: bool) -> None:
    """Say why a run, given by its id, or a job, by its id or its name, is where it is: what it waits for, who holds it."""
    asyncio.run(_explain(settings, what, as_json))


async def _explain(settings: Settings, what: str, as_json: bool) -> None:
    async with at_desk(settings) as desk:
        found = await desk.explain(what)
    if as_json:
        print_json(found.document)
        return
    say(f"{found.kind} {found.id} is {found.state}")
    for sentence in found.sentences:
        say(f"  {sentence}")
    if found.frees is not None:
        say(f"frees it: {found.frees}")
        when = "unknown" if found.probable_start_at is None else moment(found.probable_start_at)
        say(f"starts, probably: {when}")
