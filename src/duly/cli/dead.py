"""`duly dead`: runs that gave up and wait for a person."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import click

from duly.cli.connect import opened
from duly.cli.lazy import ListingGroup
from duly.cli.options import with_settings
from duly.cli.output import Listing, Row, json_option, listing_options, show_list
from duly.cli.replaying import discard_all, discard_runs, replay_all, replay_runs
from duly.cli.runs import print_run
from duly.domain.run import TENANT_DEFAULT
from duly.settings import Settings
from duly.store import runs
from duly.store.database import Database

COLUMNS = {
    "id": lambda row: row["run_id"],
    "handler": lambda row: row["handler"],
    "queue": lambda row: row["queue"],
    "attempts": lambda row: row["attempt"],
    "replays": lambda row: row["replays"],
    "buried": lambda row: row["buried_at"],
    "reason": lambda row: row["reason"],
}


@click.group(cls=ListingGroup)
def dead() -> None:
    """List, show, replay and discard runs that gave up. Without a command: list."""


@dead.command("list")
@click.option("--queue", help="Only those of this queue.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@listing_options
@with_settings()
def list_dead(settings: Settings, listing: Listing, queue: str | None, limit: int) -> None:
    """List the dead, the newest first."""

    async def read(database: Database) -> Sequence[Row]:
        return await runs.page_dead(database, TENANT_DEFAULT, queue, limit)

    show_list(settings, listing, read, COLUMNS, "no dead runs")


@dead.command("show")
@click.argument("run_id", metavar="RUN", type=click.UUID)
@json_option
@with_settings()
def show(settings: Settings, run_id: UUID, as_json: bool) -> None:
    """Show RUN: why it gave up, its attempts, its arguments."""
    asyncio.run(_show(settings, run_id, as_json))


@dead.command("replay")
@click.argument("run_ids", metavar="[RUN]...", type=click.UUID, nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every dead run, or with --queue every one of it.")
@click.option("--queue", help="Only those of this queue; with --all.")
@with_settings()
def replay(settings: Settings, run_ids: tuple[UUID, ...], everything: bool, queue: str | None) -> int:
    """Give dead runs another set of attempts. They keep their ids."""
    _choose_one(run_ids, everything, queue)
    if not everything:
        return replay_runs(settings, run_ids)
    replay_all(settings, queue)
    return 0


@dead.command("discard")
@click.argument("run_ids", metavar="[RUN]...", type=click.UUID, nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every dead run, or with --queue every one of it.")
@click.option("--queue", help="Only those of this queue; with --all.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_settings()
def discard(settings: Settings, run_ids: tuple[UUID, ...], everything: bool, queue: str | None, yes: bool) -> int:
    """Give dead runs up for good; a record stays in history."""
    _choose_one(run_ids, everything, queue)
    if not everything:
        return discard_runs(settings, run_ids)
    if not yes:
        click.confirm(f"Discard every dead run{f' of queue {queue}' if queue else ''} for good?", abort=True, err=True)
    discard_all(settings, queue)
    return 0


def _choose_one(run_ids: Sequence[UUID], everything: bool, queue: str | None) -> None:
    if bool(run_ids) == everything or (queue and not everything):
        raise click.UsageError("name the runs, or give --all, with --queue for those of one queue")


async def _show(settings: Settings, run_id: UUID, as_json: bool) -> None:
    async with opened(settings) as database:
        await print_run(database, run_id, as_json=as_json)
