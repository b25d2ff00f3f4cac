"""`duly explain`: why a run or a job is where it is."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import UUID

import click

from duly.cli.desk import Explained, at_desk
from duly.cli.explain_workflow import explained
from duly.cli.options import with_settings
from duly.cli.output import json_option, moment, print_json
from duly.cli.say import say
from duly.cli.workflow_desk import at_workflows
from duly.domain.errors import NotFound
from duly.settings import Settings


@click.command
@click.argument("what", metavar="RUN|JOB|WORKFLOW")
@json_option
@with_settings("url")
def explain(settings: Settings, what: str, as_json: bool) -> None:
    """Say why a run, job or workflow, by its id, a job also by its name, is where it is: what it waits for, who holds it."""
    asyncio.run(_explain(settings, what, as_json))


async def _explain(settings: Settings, what: str, as_json: bool) -> None:
    found = await _found(settings, what)
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


async def _found(settings: Settings, what: str) -> Explained:
    """Explain a run or a job; what is neither may be a workflow. Raises NotFound."""
    try:
        async with at_desk(settings) as desk:
            return await desk.explain(what)
    except NotFound:
        with suppress(ValueError, NotFound):
            async with at_workflows(settings) as workflows:
                return explained(await workflows.get(UUID(what)))
        raise
