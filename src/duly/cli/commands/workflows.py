"""`duly workflows`: runs that depend on each other."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import click
import msgspec

from duly.cli.client import run_request, with_client
from duly.cli.commands.plan_and_apply import read_document
from duly.cli.commands.runs.patience import about_workflow
from duly.cli.failures import REFUSED
from duly.cli.flags import apps
from duly.cli.flags.filters import chosen, filter_option, first, limit_option, none_of
from duly.cli.flags.settings import with_settings
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import (
    Columns,
    Listing,
    answer,
    json_option,
    listing_options,
    moment,
    print_json,
    print_rows,
    show_list,
    watch,
)
from duly.cli.render.say import say
from duly.cli.render.workflow import drawn, ended_text, read_workflow_row
from duly.client.asynchronous.client import AsyncClient
from duly.clock import SystemClock
from duly.domain.counting import some
from duly.domain.errors import Refused
from duly.domain.fields import non_defaults
from duly.domain.jobs.filter import WORKFLOWS
from duly.domain.jobs.job import check_key, check_reason
from duly.domain.jobs.manifest import read_workflow
from duly.domain.jobs.spec_of import workflow_spec_of
from duly.domain.problems import Problem
from duly.domain.targets.target import is_reserved
from duly.domain.workflows.references import has_references
from duly.domain.workflows.workflow import FINAL, WORKFLOW_STATES, Node
from duly.settings import Settings
from duly.wire.pages import PAGE_SIZE_MAX
from duly.wire.workflows import WorkflowReplayed, WorkflowStatus, WorkflowSummary

_NODES_SHOWN = 200
_LOOK_SECONDS_MIN, _LOOK_SECONDS_MAX = 0.1, 1.0

COLUMNS: Columns = {
    "id": "workflow_id",
    "name": "name",
    "state": "state",
    "nodes": "nodes",
    "submitted": "submitted_at",
    "duration": lambda one: one.ended_at - one.submitted_at if one.ended_at else None,
    "tags": "tags",
    "note": "reason",
}
NODE_COLUMNS: Columns = {
    "node": lambda row: row["drawing"],
    "state": lambda row: row["state"],
    "runs": lambda row: row["target"]["url"] or row["target"]["handler"],
    "queue": lambda row: row["queue"],
    "attempt": lambda row: row["attempt"],
    "duration": lambda row: row["ended_at"] - row["released_at"] if row["ended_at"] and row["released_at"] else None,
    "run": lambda row: row["run_id"],
    "note": lambda row: row["note"],
}
_workflow_ids = click.argument("workflow_ids", metavar="WORKFLOW...", type=click.UUID, nargs=-1, required=True)


@click.group(cls=ListingGroup)
def workflows() -> None:
    """List, show, submit, cancel, pause, resume and replay workflows. Without a command: list."""


@workflows.command("list")
@click.option("--state", type=click.Choice(WORKFLOW_STATES))
@click.option("--name", help="Only those of this name.")
@click.option("--tag", help="Only those with this tag.")
@filter_option
@limit_option
@with_client(options=listing_options)
async def list_workflows(
    client: AsyncClient,
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

    async def read() -> list[WorkflowSummary]:
        return await first(client.workflows.list(wanted or None, page_size=min(limit, PAGE_SIZE_MAX)), limit)

    await show_list(listing, read, COLUMNS, empty)


@workflows.command("show")
@click.argument("workflow_id", metavar="WORKFLOW", type=click.UUID)
@click.option("--result", "node", metavar="NODE", help="Show only this node, as JSON.")
@with_client(options=listing_options)
async def show_workflow(client: AsyncClient, listing: Listing, workflow_id: UUID, node: str | None) -> None:
    """Show WORKFLOW: its state, and its nodes as a tree. With --watch, until it has ended."""
    if node is not None:
        print_json((await client.workflows.node(workflow_id, node)).result)
        return
    look, patience = partial(read_workflow_row, client, workflow_id), about_workflow(workflow_id)

    def show(found: Mapping[str, Any]) -> None:
        if listing.as_json:
            print_json(found, is_one_line=listing.watch)
        else:
            _print(found)

    patiently = partial(patience.until_answered, look) if listing.watch else look
    await watch(listing, patiently, show, lambda found: found["state"] in FINAL)


@workflows.command("submit")
@click.argument("file", metavar="FILE")
@click.option("--key", help="Idempotency key: repeated requests within a day store it once.")
@click.option("--wait", is_flag=True, help="Wait for its end; exit with 1 unless it succeeded.")
@json_option
@with_settings("app", "url")
def submit_workflow(settings: Settings, file: str, key: str | None, wait: bool, as_json: bool) -> int:
    """Submit the workflow in FILE, YAML or JSON; - reads standard input.

    It is checked as a whole, and stored whole or not at all.

    If the app is known (--app, or `app` in duly.toml), its handlers and their arguments are checked before anything is
    sent; references to other nodes are checked when the node runs.
    """
    chosen_key = secrets.token_urlsafe(16) if key is None else check_key(key)
    document, name = read_document(file)
    check = partial(_problems_with, apps.load(settings.app)) if settings.app else None
    workflow = read_workflow(document.value, document.places, name, check)

    async def submit(client: AsyncClient) -> int:
        created = await client.workflows.create(non_defaults(workflow_spec_of(workflow)), key=chosen_key)
        if not as_json:
            say(f"workflow {created.workflow_id} {workflow.name!r} of {some(len(workflow.nodes), 'node')}")
        found = await (_ended if wait else read_workflow_row)(client, created.workflow_id)
        if as_json:
            print_json(found)
        elif wait:
            _print(found)
        return REFUSED if wait and found["state"] != "succeeded" else 0

    return run_request(settings, submit)


@workflows.command("cancel")
@_workflow_ids
@click.option("--reason", default="cancelled on request", show_default=True)
@with_client()
async def cancel(client: AsyncClient, workflow_ids: tuple[UUID, ...], reason: str, as_json: bool) -> None:
    """Cancel workflows: waiting nodes never start, active ones are asked to stop."""
    await _each(workflow_ids, partial(client.workflows.cancel, reason=check_reason(reason)), as_json)


@workflows.command("pause")
@_workflow_ids
@with_client()
async def pause(client: AsyncClient, workflow_ids: tuple[UUID, ...], as_json: bool) -> None:
    """Pause workflows: no further node starts; active ones go on."""
    await _each(workflow_ids, client.workflows.pause, as_json)


@workflows.command("resume")
@_workflow_ids
@with_client()
async def resume(client: AsyncClient, workflow_ids: tuple[UUID, ...], as_json: bool) -> None:
    """Resume paused workflows."""
    await _each(workflow_ids, client.workflows.resume, as_json)


@workflows.command("replay")
@click.argument("workflow_id", metavar="WORKFLOW", type=click.UUID)
@click.argument("node", metavar="NODE")
@click.option("--dry-run", is_flag=True, help="Show what would run again; change nothing.")
@with_client()
async def replay(client: AsyncClient, workflow_id: UUID, node: str, dry_run: bool, as_json: bool) -> None:
    """Replay NODE of WORKFLOW and its descendants. The other nodes keep their results."""
    done = await client.workflows.replay(workflow_id, node, dry_run=dry_run)
    changes = {"nodes": done.nodes, "recreated": done.recreated, "kept": done.kept}
    answer(as_json, {"workflow_id": workflow_id, **changes, "dry_run": dry_run}, *_replayed(done, dry_run=dry_run))


def _replayed(done: WorkflowReplayed, *, dry_run: bool) -> Iterator[str]:
    count = len(done.nodes)
    said = some(count, "node would run", "nodes would run") if dry_run else some(count, "node runs", "nodes run")
    yield f"workflow {done.workflow_id}: {said} again: {', '.join(done.nodes[:20])}"
    if dry_run:
        recreated = f", {some(len(done.recreated), 'item')} would be created anew" if done.recreated else ""
        yield f"{some(done.kept, 'node')} would keep their results{recreated}; nothing was changed"


async def _each(workflow_ids: Sequence[UUID], move: Callable[[UUID], Awaitable[WorkflowStatus]], as_json: bool) -> None:
    states: dict[UUID, str] = {}
    try:
        for workflow_id in workflow_ids:
            states[workflow_id] = (await move(workflow_id)).state
    finally:  # a refused one ends it; earlier results are printed all the same
        _print_states(states, as_json=as_json)


def _print_states(states: Mapping[UUID, str], *, as_json: bool) -> None:
    if as_json:
        print_json([{"workflow_id": workflow_id, "state": state} for workflow_id, state in states.items()])
        return
    for workflow_id, state in states.items():
        say(f"workflow {workflow_id} is {state}")


async def _ended(client: AsyncClient, workflow_id: UUID) -> Mapping[str, Any]:
    pause, patience = _LOOK_SECONDS_MIN, about_workflow(workflow_id)
    while True:
        found = await patience.until_answered(lambda: read_workflow_row(client, workflow_id))
        if found["state"] in FINAL:
            return found
        await SystemClock().sleep(pause)
        pause = min(pause * 1.5, _LOOK_SECONDS_MAX)


def _print(found: Mapping[str, Any]) -> None:
    nodes = found["nodes"]
    why = f": {found['reason']}" if found["reason"] else ""
    say(f"workflow {found['workflow_id']} {found['name']!r} is {found['state']}{why}")
    until = f", ended {moment(found['ended_at'])}" if found["ended_at"] else ""
    say(f"{ended_text(nodes)}; submitted {moment(found['submitted_at'])}{until}")
    if found["tags"]:
        say(f"tags  {', '.join(found['tags'])}")
    shown = drawn(nodes, _NODES_SHOWN)
    print_rows(shown, NODE_COLUMNS, "no nodes")
    if len(shown) < len(nodes):
        say(f"and {len(nodes) - len(shown)} more; --json shows all")


def _problems_with(app: Any, node: Node) -> Iterator[Problem]:
    """Return the problems of a node that the app knows before anything is sent: its handler, its queue, its arguments."""
    shot, path = node.submission, ("nodes", node.name)
    if is_reserved(shot.handler):
        return
    try:
        handler = app.registry[shot.handler]
    except Refused as error:
        yield Problem((*path, "target"), str(error))
        return
    try:
        app.check_queue(shot.queue)
    except Refused as error:
        yield Problem((*path, "queue"), str(error))
    try:
        handler.encode_open((), msgspec.json.decode(shot.payload), _as_reference)
    except Refused as error:
        yield Problem((*path, "payload"), str(error))


def _as_reference(value: Any) -> Any:
    """Replace references by objects of their own, to distinguish them from values to check."""
    is_open = isinstance(value, dict | list) and has_references(msgspec.json.encode(value).decode())
    return value.copy() if is_open else value
