"""`duly explain`: the reasons of a run's or a job's state."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import click

from duly.cli.client import with_client
from duly.cli.flags.names import job_id_of
from duly.cli.render.output import moment, print_json
from duly.cli.render.say import say
from duly.cli.render.workflow import read_workflow_row, workflow_sentences
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import NotFound
from duly.wire.explanations import Explanation


@click.command
@click.argument("what", metavar="RUN|JOB|WORKFLOW")
@with_client()
async def explain(client: AsyncClient, what: str, as_json: bool) -> None:
    """Explain the state of a run, job or workflow, given by its id, a job also by its name: what it waits for, who holds it."""
    identifier = await job_id_of(client, what)
    try:
        found = await explanation_of(client, identifier)
    except NotFound:
        await _explain_workflow(client, identifier, as_json)
        return
    if as_json:
        print_json(found)
        return
    _say(found.kind, found.id, found.state, [reason.text for reason in found.reasons])
    if found.blocker is not None:
        say(f"resolved by: {found.blocker.resolved_by}")
        when = found.blocker.probable_start_at
        say(f"starts, probably: {'unknown' if when is None else moment(when)}")


async def explanation_of(client: AsyncClient, identifier: UUID) -> Explanation:
    """Explain a job or a run. Raises NotFound."""
    try:
        return await client.jobs.explain(identifier)
    except NotFound:
        return await client.runs.explain(identifier)


async def _explain_workflow(client: AsyncClient, identifier: UUID, as_json: bool) -> None:
    try:
        found = await read_workflow_row(client, identifier)
    except NotFound:
        lists = "`duly runs`, `duly jobs` and `duly workflows` list them"
        raise NotFound(f"no run, job or workflow {identifier}; {lists}") from None
    if as_json:
        print_json(found)
    else:
        _say("workflow", found["workflow_id"], found["state"], workflow_sentences(found))


def _say(kind: str, identifier: UUID, state: str, sentences: Iterable[str]) -> None:
    say(f"{kind} {identifier} is {state}")
    for sentence in sentences:
        say(f"  {sentence}")
