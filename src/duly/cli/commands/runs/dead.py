"""`duly dead`: runs that gave up and wait for a person."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from uuid import UUID

import click
import msgspec

from duly.cli.client import with_client
from duly.cli.commands.runs.runs import print_run
from duly.cli.flags.arguments import read_payload
from duly.cli.flags.bulk import Many, Verb, change_many, many_options, move_these
from duly.cli.flags.filters import chosen, filter_option, first, limit_option, none_of
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Columns, Listing, Row, listing_options, show_list
from duly.client.asynchronous.client import AsyncClient
from duly.domain.jobs.filter import DEAD
from duly.wire.jobs.bulk import ManyDone
from duly.wire.pages import PAGE_SIZE_MAX
from duly.wire.runs import BULK_LIMIT_DEFAULT, BulkResponse

COLUMNS = {
    "id": "run_id",
    "handler": "handler",
    "queue": "queue",
    "attempts": "attempt",
    "replays": "replays",
    "buried": "buried_at",
    "reason": "reason",
    "tags": "tags",
}
GROUP_COLUMNS: Columns = {
    "runs": "count",
    "error": "error",
    "handlers": "handlers",
    "first": "first_buried_at",
    "last": "last_buried_at",
    "such as": lambda group: group.sample[0],
}


def choice_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that select dead runs to a command that takes `run_ids`, `many` and `queue`."""
    run_ids = click.argument("run_ids", metavar="[RUN]...", type=click.UUID, nargs=-1)
    queue = click.option("--queue", help="Only those of this queue; with --all or --filter.")
    return run_ids(many_options("run_ids")(queue(function)))


@click.group(cls=ListingGroup)
def dead() -> None:
    """List, show, edit, replay and discard runs that gave up. Without a command: list.

    With --filter up to 1,000 are changed at once, unless --limit says otherwise; --dry-run counts all.
    """


@dead.command("list")
@click.option("--queue", help="Only those of this queue.")
@click.option("--group", type=click.Choice(["error"]), help="Group them by similar reasons.")
@filter_option
@limit_option
@with_client(options=listing_options)
async def list_dead(
    client: AsyncClient, listing: Listing, queue: str | None, group: str | None, filter_text: str, limit: int
) -> None:
    """List the dead, the last buried first."""
    wanted = chosen(filter_text, DEAD, queue=queue)

    async def read() -> list[Row]:
        if group:
            return (await client.dead.groups(wanted or None))[:limit]
        return await first(client.dead.list(wanted or None, page_size=min(limit, PAGE_SIZE_MAX)), limit)

    empty = none_of("dead runs", wanted, "no dead runs")
    await show_list(listing, read, GROUP_COLUMNS if group else COLUMNS, empty)


@dead.command("show")
@click.argument("run_id", metavar="RUN", type=click.UUID)
@with_client()
async def show(client: AsyncClient, run_id: UUID, as_json: bool) -> None:
    """Show RUN: why it gave up, its attempts, its arguments."""
    await print_run(client, run_id, as_json=as_json)


@dead.command("replay")
@choice_options
@click.option("--rate", type=float, help="Runs per second instead of all at once; with --all or --filter.")
@with_client()
async def replay(client: AsyncClient, rate: float | None, run_ids: tuple[UUID, ...], **choice: Any) -> int:
    """Replay dead runs with a new set of attempts. They keep their ids, and attempt numbers go on."""
    if rate is not None and run_ids:
        raise click.UsageError("--rate goes with --filter or --all; runs that are named are replayed at once")
    matching = partial(client.dead.replay_matching, rate=rate)
    return await _move("Replay", "replayed", client.dead.replay, matching, run_ids, **choice)


@dead.command("edit")
@choice_options
@click.option("--payload", required=True, metavar="PAYLOAD", help="The new arguments as one JSON object.")
@with_client()
async def edit(client: AsyncClient, payload: str, **choice: Any) -> int:
    """Change the arguments of dead runs, for their replay."""
    arguments = read_payload((), payload, "--payload")
    one = partial(client.dead.edit, payload=arguments)
    return await _move("Edit", "edited", one, partial(client.dead.edit_matching, payload=arguments), **choice)


@dead.command("discard")
@choice_options
@with_client()
async def discard(client: AsyncClient, **choice: Any) -> int:
    """Discard dead runs for good; a record stays in history."""
    return await _move("Discard", "discarded", client.dead.discard, client.dead.discard_matching, **choice)


async def _move(
    word: str,
    done: str,
    one: Callable[[UUID], Awaitable[object]],
    matching: Callable[..., Awaitable[BulkResponse]],
    run_ids: tuple[UUID, ...],
    many: Many | None,
    queue: str | None,
    as_json: bool,
) -> int:
    """Move the named runs, or those that match; with a filter a thousand, unless --limit is given."""

    async def change(**which: Any) -> ManyDone:
        found = msgspec.structs.asdict(await matching(**which))
        moved = found.pop("moved")
        return ManyDone(**found, changed=moved, refused=[])

    if many is None:
        if queue is not None:
            raise click.UsageError("--queue goes with --filter or --all")
        return await move_these(run_ids, one, done, as_json=as_json)
    wanted = chosen(many.filter_text, DEAD, queue=queue)
    is_whole = many.limit is not None or many.everything or many.dry_run
    limit = many.limit if is_whole else BULK_LIMIT_DEFAULT
    many = msgspec.structs.replace(many, filter_text=wanted, everything=not wanted, limit=limit)
    return await change_many(Verb(word, done, "run", DEAD, change, "moved"), many, as_json=as_json)
