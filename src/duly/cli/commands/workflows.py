"""`duly workflows`: runs that wait for each other."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import click
import msgspec

from duly.cli.client import connected
from duly.cli.commands.plan_and_apply import read_document
from duly.cli.commands.runs.patience import about_workflow
from duly.cli.failures import REFUSED
from duly.cli.flags import apps
from duly.cli.flags.filters import chosen, filter_option, first, limit_option, none_of
from duly.cli.flags.settings import with_settings
from duly.cli.flags.workflow_check import problems_with
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Listing, Row, json_option, listing_options, moment, print_json, print_rows, show_list
from duly.cli.render.say import say
from duly.cli.render.screen import some
from duly.cli.render.workflow import how_far, read_workflow_row
from duly.cli.render.workflow_tree import drawn
from duly.client.asynchronous.client import AsyncClient
from duly.clock import SystemClock
from duly.domain.fields import non_defaults
from duly.domain.jobs.filter import WORKFLOW_STATES, WORKFLOWS
from duly.domain.jobs.job import check_key, check_reason
from duly.domain.jobs.manifest import read_workflow
from duly.domain.jobs.spec_of import workflow_spec_of
from duly.domain.workflows.workflow import FINAL
from duly.settings import Settings
from duly.wire.pages import PAGE_SIZE_MAX
from duly.wire.workflows import WorkflowStatus

_NODES_SHOWN = 200
_LOOK_SECONDS_MIN, _LOOK_SECONDS_MAX = 0.1, 1.0

COLUMNS = {
    "id": lambda row: row["workflow_id"],
    "name": lambda row: row["name"],
    "state": lambda row: row["state"],
    "nodes": lambda row: row["nodes"],
    "submitted": lambda row: row["submitted_at"],
    "took": lambda row: row["ended_at"] - row["submitted_at"] if row["ended_at"] else None,
    "tags": lambda row: row["tags"],
    "note": lambda row: row["reason"],
}
NODE_COLUMNS = {
    "node": lambda row: row["drawing"],
    "state": lambda row: row["state"],
    "runs": lambda row: row["target"]["url"] or row["target"]["handler"],
    "queue": lambda row: row["queue"],
    "attempt": lambda row: row["attempt"],
    "took": lambda row: row["ended_at"] - row["released_at"] if row["ended_at"] and row["released_at"] else None,
    "run": lambda row: row["run_id"],
    "note": lambda row: row["note"],
}


@click.group(cls=ListingGroup)
def workflows() -> None:
    """List, show, submit, cancel, pause, resume and replay workflows. Without a command: list."""


@workflows.command("list")
@click.option("--state", type=click.Choice(WORKFLOW_STATES))
@click.option("--name", help="Only those of this name.")
@click.option("--tag", help="Only those with this tag.")
@filter_option
@limit_option
@listing_options
@with_settings("url")
def list_workflows(
    settings: Settings,
    listing: Listing,
    state: str | None,
    name: str | None,
    tag: str | None,
    filter_text: str,
    limit: int,
) -> None:
    """List workflows, the newest first."""
    wanted = chosen(filter_text, WORKFLOWS, state=state, name=name, tag=tag)
    empty = none_of("workflows", wanted, "no workflows yet; make one: duly workflows submit FILE")

    async def read(client: AsyncClient) -> list[Row]:
        found = client.workflows.list(wanted or None, page_size=min(limit, PAGE_SIZE_MAX))
        return [msgspec.structs.asdict(one) for one in await first(found, limit)]

    show_list(settings, listing, read, COLUMNS, empty)


@workflows.command("show")
@click.argument("workflow_id", metavar="WORKFLOW", type=click.UUID)
@click.option("--result", "node", metavar="NODE", help="Show what this node came to, as JSON, and nothing else.")
@listing_options
@with_settings("url")
def show_workflow(settings: Settings, listing: Listing, workflow_id: UUID, node: str | None) -> None:
    """Show WORKFLOW: how it stands, and its nodes as a tree. With --watch, until it has ended."""
    asyncio.run(_show(settings, listing, workflow_id) if node is None else _show_result(settings, workflow_id, node))


@workflows.command("submit")
@click.argument("file", metavar="FILE")
@click.option("--key", help="Submitted again under the same key within a day, it is stored once.")
@click.option("--wait", is_flag=True, help="Wait for its end, and exit with 1 unless it has succeeded.")
@json_option
@with_settings("app", "url")
def submit_workflow(settings: Settings, file: str, key: str | None, wait: bool, as_json: bool) -> int:
    """Submit the workflow in FILE, YAML or JSON; - reads standard input. It is checked whole, and stored whole or not at all.

    If the app is known (--app, or `app` in duly.toml), the handlers that it names and their arguments are checked against it
    before anything is sent; what a node is given of others is not known yet, and is checked when it runs.
    """
    chosen_key = secrets.token_urlsafe(16) if key is None else check_key(key)
    return asyncio.run(_submit(settings, file, chosen_key, wait=wait, as_json=as_json))


@workflows.command("cancel")
@click.argument("workflow_ids", metavar="WORKFLOW...", type=click.UUID, nargs=-1, required=True)
@click.option("--reason", default="cancelled on request", show_default=True)
@json_option
@with_settings("url")
def cancel(settings: Settings, workflow_ids: tuple[UUID, ...], reason: str, as_json: bool) -> None:
    """Cancel workflows: what waits will never start, what runs is asked to stop."""
    why = check_reason(reason)
    asyncio.run(_each(settings, workflow_ids, lambda client, one: client.workflows.cancel(one, reason=why), as_json))


@workflows.command("pause")
@click.argument("workflow_ids", metavar="WORKFLOW...", type=click.UUID, nargs=-1, required=True)
@json_option
@with_settings("url")
def pause(settings: Settings, workflow_ids: tuple[UUID, ...], as_json: bool) -> None:
    """Let no further node of workflows start; those that run go on."""
    asyncio.run(_each(settings, workflow_ids, lambda client, one: client.workflows.pause(one), as_json))


@workflows.command("resume")
@click.argument("workflow_ids", metavar="WORKFLOW...", type=click.UUID, nargs=-1, required=True)
@json_option
@with_settings("url")
def resume(settings: Settings, workflow_ids: tuple[UUID, ...], as_json: bool) -> None:
    """Let paused workflows go on."""
    asyncio.run(_each(settings, workflow_ids, lambda client, one: client.workflows.resume(one), as_json))


@workflows.command("replay")
@click.argument("workflow_id", metavar="WORKFLOW", type=click.UUID)
@click.argument("node", metavar="NODE")
@click.option("--dry-run", is_flag=True, help="Say what would run again, and change nothing.")
@json_option
@with_settings("url")
def replay(settings: Settings, workflow_id: UUID, node: str, dry_run: bool, as_json: bool) -> None:
    """Run NODE of WORKFLOW again, and all that follow from it. The other nodes keep their results."""
    asyncio.run(_replay(settings, workflow_id, node, is_dry=dry_run, as_json=as_json))


async def _each(
    settings: Settings,
    workflow_ids: Sequence[UUID],
    move: Callable[[AsyncClient, UUID], Awaitable[WorkflowStatus]],
    as_json: bool,
) -> None:
    states: dict[UUID, str] = {}
    async with connected(settings) as client:
        try:
            for workflow_id in workflow_ids:
                states[workflow_id] = (await move(client, workflow_id)).state
        finally:  # One that is refused ends it; what was done before is told all the same.
            _tell_states(states, as_json=as_json)


def _tell_states(states: Mapping[UUID, str], *, as_json: bool) -> None:
    if as_json:
        print_json([{"workflow_id": workflow_id, "state": state} for workflow_id, state in states.items()])
        return
    for workflow_id, state in states.items():
        say(f"workflow {workflow_id} is {state}")


async def _replay(settings: Settings, workflow_id: UUID, node: str, *, is_dry: bool, as_json: bool) -> None:
    async with connected(settings) as client:
        done = await client.workflows.replay(workflow_id, node, dry_run=is_dry)
    if as_json:
        told = {"nodes": done.nodes, "remade": done.remade, "kept": done.kept}
        print_json({"workflow_id": workflow_id, **told, "dry_run": is_dry})
        return
    count = len(done.nodes)
    said = some(count, "node would run", "nodes would run") if is_dry else some(count, "node runs", "nodes run")
    say(f"workflow {workflow_id}: {said} again: {', '.join(done.nodes[:20])}")
    if is_dry:
        remade = f", {some(len(done.remade), 'item')} would be made anew" if done.remade else ""
        say(f"{some(done.kept, 'node')} would keep what came of it{remade}; nothing was changed")


async def _submit(settings: Settings, file: str, key: str, *, wait: bool, as_json: bool) -> int:
    document, name = read_document(file)
    check = partial(problems_with, apps.load(settings.app)) if settings.app else None
    workflow = read_workflow(document.value, document.places, name, check)
    async with connected(settings) as client:
        workflow_id = (await client.workflows.create(non_defaults(workflow_spec_of(workflow)), key=key)).workflow_id
        if not as_json:
            say(f"workflow {workflow_id} {workflow.name!r} of {some(len(workflow.nodes), 'node')}")
        found = await (_ended(client, workflow_id) if wait else read_workflow_row(client, workflow_id))
    if as_json:
        print_json(found)
    elif wait:
        _print(found)
    return REFUSED if wait and found["state"] != "succeeded" else 0


async def _ended(client: AsyncClient, workflow_id: UUID) -> Mapping[str, Any]:
    pause, patience = _LOOK_SECONDS_MIN, about_workflow(workflow_id)
    while True:
        found = await patience.ask(lambda: read_workflow_row(client, workflow_id))
        if found["state"] in FINAL:
            return found
        await SystemClock().sleep(pause)
        pause = min(pause * 1.5, _LOOK_SECONDS_MAX)


async def _show(settings: Settings, listing: Listing, workflow_id: UUID) -> None:
    async with connected(settings) as client:
        look, patience = partial(read_workflow_row, client, workflow_id), about_workflow(workflow_id)
        while True:
            found = await (patience.ask(look) if listing.watch else look())
            if listing.watch and not listing.as_json and sys.stdout.isatty():
                click.clear()
            if listing.as_json:
                print_json(found, is_one_line=listing.watch)
            else:
                _print(found)
            if not listing.watch or found["state"] in FINAL:
                return
            await SystemClock().sleep(listing.interval)


async def _show_result(settings: Settings, workflow_id: UUID, node: str) -> None:
    async with connected(settings) as client:
        print_json((await client.workflows.node(workflow_id, node)).result)


def _print(found: Mapping[str, Any]) -> None:
    nodes = found["nodes"]
    why = f": {found['reason']}" if found["reason"] else ""
    say(f"workflow {found['workflow_id']} {found['name']!r} is {found['state']}{why}")
    until = f", ended {moment(found['ended_at'])}" if found["ended_at"] else ""
    say(f"{how_far(nodes)}; submitted {moment(found['submitted_at'])}{until}")
    if found["tags"]:
        say(f"tags  {', '.join(found['tags'])}")
    shown = drawn(nodes, _NODES_SHOWN)
    print_rows(shown, NODE_COLUMNS, "no nodes")
    if len(shown) < len(nodes):
        say(f"and {len(nodes) - len(shown)} more; --json shows all")
