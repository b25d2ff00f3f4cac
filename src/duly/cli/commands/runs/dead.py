"""`duly dead`: runs that gave up and wait for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from typing import Any
from uuid import UUID

import click
import msgspec

from duly.cli.client import connected
from duly.cli.commands.runs.dead_many import BulkMove, Move, move_matching, move_these
from duly.cli.commands.runs.runs import print_run
from duly.cli.flags.arguments import read_payload
from duly.cli.flags.filters import chosen, filter_option, first, limit_option, none_of
from duly.cli.flags.settings import with_settings
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Listing, Row, json_option, listing_options, show_list
from duly.client.asynchronous.client import AsyncClient
from duly.domain.jobs.filter import DEAD
from duly.settings import Settings
from duly.wire.pages import PAGE_SIZE_MAX
from duly.wire.runs import BULK_LIMIT_DEFAULT, BULK_LIMIT_MAX

COLUMNS = {
    "id": lambda row: row["run_id"],
    "handler": lambda row: row["handler"],
    "queue": lambda row: row["queue"],
    "attempts": lambda row: row["attempt"],
    "replays": lambda row: row["replays"],
    "buried": lambda row: row["buried_at"],
    "reason": lambda row: row["reason"],
    "tags": lambda row: row["tags"],
}


class Choice(msgspec.Struct, frozen=True):
    """Which dead runs are meant: these, or those that fit; and whether they are only to be counted."""

    run_ids: tuple[UUID, ...]
    everything: bool
    queue: str | None
    filter_text: str
    limit: int | None
    dry_run: bool


def choice_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add what says which dead runs are meant to a command that takes `choice`."""

    @wraps(function)
    def call(
        *,
        run_ids: tuple[UUID, ...],
        everything: bool,
        queue: str | None,
        filter_text: str,
        limit: int | None,
        dry_run: bool,
        **given: Any,
    ) -> Any:
        by_filter = bool(filter_text.strip()) or everything
        if bool(run_ids) == by_filter or (run_ids and (queue or limit or dry_run)) or (filter_text and everything):
            raise click.UsageError(
                "name the runs, or choose them with --filter, or give --all; --queue narrows --all down"
            )
        cap = limit if limit is not None or everything or dry_run else BULK_LIMIT_DEFAULT
        return function(choice=Choice(run_ids, everything, queue, filter_text, cap, dry_run), **given)

    command: Callable[..., Any] = call
    for decorate in reversed(
        (
            click.argument("run_ids", metavar="[RUN]...", type=click.UUID, nargs=-1),
            filter_option,
            click.option("--all", "everything", is_flag=True, help="Every dead run, or with --queue every one of it."),
            click.option("--queue", help="Only those of this queue; with --all or --filter."),
            click.option(
                "--limit",
                type=click.IntRange(1, BULK_LIMIT_MAX),
                help=f"So many at most; with --filter {BULK_LIMIT_DEFAULT} unless told otherwise, while --dry-run counts all.",
            ),
            click.option("--dry-run", is_flag=True, help="Count them and show a few; change nothing."),
        )
    ):
        command = decorate(command)
    return command


@click.group(cls=ListingGroup)
def dead() -> None:
    """List, show, edit, replay and discard runs that gave up. Without a command: list."""


GROUP_COLUMNS = {
    "runs": lambda row: row["count"],
    "error": lambda row: row["error"],
    "handlers": lambda row: row["handlers"],
    "first": lambda row: row["first_buried_at"],
    "last": lambda row: row["last_buried_at"],
    "such as": lambda row: row["sample"][0],
}


@dead.command("list")
@click.option("--queue", help="Only those of this queue.")
@click.option("--group", type=click.Choice(["error"]), help="Count them by what is alike in their reasons.")
@filter_option
@limit_option
@listing_options
@with_settings("url")
def list_dead(
    settings: Settings, listing: Listing, queue: str | None, group: str | None, filter_text: str, limit: int
) -> None:
    """List the dead, the last buried first."""
    wanted = chosen(filter_text, DEAD, queue=queue)

    async def read(client: AsyncClient) -> list[Row]:
        if group:
            return [msgspec.structs.asdict(one) for one in (await client.dead.groups(wanted or None))[:limit]]
        found = client.dead.list(wanted or None, page_size=min(limit, PAGE_SIZE_MAX))
        return [msgspec.structs.asdict(one) for one in await first(found, limit)]

    empty = none_of("dead runs", wanted, "no dead runs")
    show_list(settings, listing, read, GROUP_COLUMNS if group else COLUMNS, empty)


@dead.command("show")
@click.argument("run_id", metavar="RUN", type=click.UUID)
@json_option
@with_settings("url")
def show(settings: Settings, run_id: UUID, as_json: bool) -> None:
    """Show RUN: why it gave up, its attempts, its arguments."""
    asyncio.run(_show(settings, run_id, as_json))


@dead.command("replay")
@choice_options
@click.option("--rate", type=float, help="So many a second, instead of all at once; with --all or --filter.")
@json_option
@with_settings("url")
def replay(settings: Settings, choice: Choice, rate: float | None, as_json: bool) -> int:
    """Give dead runs another set of attempts. They keep their ids, and attempt numbers go on."""
    if rate is not None and choice.run_ids:
        raise click.UsageError("--rate goes with --filter or --all; runs that are named are replayed at once")
    return _move(
        settings,
        choice,
        lambda client, run_id: client.dead.replay(run_id),
        lambda client, **which: client.dead.replay_matching(**which, rate=rate),
        "replayed",
        as_json,
    )


@dead.command("edit")
@choice_options
@click.option("--payload", required=True, metavar="PAYLOAD", help="The new arguments as one JSON object.")
@json_option
@with_settings("url")
def edit(settings: Settings, choice: Choice, payload: str, as_json: bool) -> int:
    """Give dead runs other arguments, which their replay is called with."""
    arguments = read_payload((), payload, "--payload")

    return _move(
        settings,
        choice,
        lambda client, run_id: client.dead.edit(run_id, arguments),
        lambda client, **which: client.dead.edit_matching(**which, payload=arguments),
        "edited",
        as_json,
    )


@dead.command("discard")
@choice_options
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@with_settings("url")
def discard(settings: Settings, choice: Choice, yes: bool, as_json: bool) -> int:
    """Give dead runs up for good; a record stays in history."""
    if choice.everything and not yes and not choice.dry_run:
        of_queue = f" of queue {choice.queue}" if choice.queue else ""
        click.confirm(f"Discard every dead run{of_queue} for good?", abort=True, err=True)
    return _move(
        settings,
        choice,
        lambda client, run_id: client.dead.discard(run_id),
        lambda client, **which: client.dead.discard_matching(**which),
        "discarded",
        as_json,
    )


def _move(settings: Settings, choice: Choice, these: Move, matching: BulkMove, done: str, as_json: bool) -> int:
    if choice.run_ids:
        return move_these(settings, choice.run_ids, these, done, as_json=as_json)
    wanted = chosen(choice.filter_text, DEAD, queue=choice.queue)
    move_matching(settings, wanted, matching, done, limit=choice.limit, dry_run=choice.dry_run, as_json=as_json)
    return 0


async def _show(settings: Settings, run_id: UUID, as_json: bool) -> None:
    async with connected(settings) as client:
        await print_run(client, run_id, as_json=as_json)
