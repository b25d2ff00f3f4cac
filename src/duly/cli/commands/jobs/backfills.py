"""Backfills: the occurrences of a stretch made again, how far they have come, and an end to them."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial
from shlex import quote
from typing import Literal
from uuid import UUID

import click
import msgspec

from duly.cli.client import connected
from duly.cli.flags.arguments import read_moment
from duly.cli.flags.filters import first
from duly.cli.flags.names import job_id_of
from duly.cli.flags.settings import with_settings
from duly.cli.render.output import Listing, json_option, listing_options, moment, print_json, show_list
from duly.cli.render.say import say
from duly.cli.render.screen import some
from duly.client.asynchronous.client import AsyncClient
from duly.domain.jobs.job import check_moment
from duly.settings import Settings
from duly.wire.jobs.verbs import BackfillAsked, BackfillStatus

_UNCONFIRMED_MAX = 10_000

COLUMNS = {
    "id": lambda one: one.backfill_id,
    "job": lambda one: one.job_id,
    "why": lambda one: "missed" if one.origin == "schedule" else "asked for",
    "state": lambda one: one.state,
    "made": lambda one: f"{one.made} of {one.total}",
    "from": lambda one: one.from_at,
    "to": lambda one: one.to_at,
    "rate": lambda one: f"{one.rate:g}/s",
}


class Stretch(msgspec.Struct, frozen=True):
    """The occurrences of [start, end), `rate` a second; one after the other, or beside each other."""

    start: datetime
    end: datetime
    rate: float
    overlap: Literal["queue", "allow"]


@click.command("backfill")
@click.argument("job", metavar="JOB")
@click.option("--from", "start", required=True, metavar="MOMENT", help="The first moment, with its offset.")
@click.option("--to", "end", required=True, metavar="MOMENT", help="The first moment no longer made.")
@click.option("--rate", default=1.0, show_default=True, type=float, help="How many a second.")
@click.option(
    "--overlap",
    default="queue",
    show_default=True,
    type=click.Choice(["queue", "allow"]),
    help="One after the other, or beside each other.",
)
@click.option("--dry-run", is_flag=True, help="Only count them, and show the first.")
@click.option("--yes", is_flag=True, help="Do not ask, however many they are.")
@json_option
@with_settings("url")
def backfill_job(
    settings: Settings,
    job: str,
    start: str,
    end: str,
    rate: float,
    overlap: Literal["queue", "allow"],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Make the occurrences of JOB in a stretch again, below all that is on time.

    They wait for each other, unless told otherwise, and the schedule is not moved. More than 10,000 are asked about first.
    """
    stretch = Stretch(_moment(start, "from"), _moment(end, "to"), rate, overlap)
    asyncio.run(_backfill(settings, job, stretch, dry_run, yes, as_json))


@click.command("backfills")
@click.argument("job", metavar="[JOB]", required=False)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000))
@listing_options
@with_settings("url")
def list_backfills(settings: Settings, listing: Listing, job: str | None, limit: int) -> None:
    """List what was made again or made up for, of JOB or of all, the newest first."""

    async def read(client: AsyncClient) -> list[BackfillStatus]:
        return await first(client.backfills.list(None if job is None else await job_id_of(client, job)), limit)

    show_list(settings, listing, read, COLUMNS, "no backfills; ask for one: duly jobs backfill JOB --from … --to …")


@click.command("cancel-backfill")
@click.argument("backfill_id", metavar="BACKFILL", type=click.UUID)
@json_option
@with_settings("url")
def cancel(settings: Settings, backfill_id: UUID, as_json: bool) -> None:
    """Stop BACKFILL, and take back what it made that has not started."""
    asyncio.run(_cancel(settings, backfill_id, as_json))


async def _backfill(settings: Settings, job: str, stretch: Stretch, dry_run: bool, yes: bool, as_json: bool) -> None:
    async with connected(settings) as client:
        job_id = await job_id_of(client, job)
        make = partial(
            client.jobs.backfill,
            job_id,
            stretch.start,
            stretch.end,
            rate=stretch.rate,
            overlap=stretch.overlap,
            confirm=True,
        )
        asked = await make(dry_run=True)
        if not dry_run and asked.count:
            _confirm(asked.count, yes or asked.is_partial)  # More than can be asked for are refused.
            asked = await make(dry_run=False)
    if as_json:
        print_json({name: getattr(asked, name) for name in ("backfill_id", "count", "first", "is_partial")})
    else:
        say("\n".join(_lines(asked, job, stretch.rate, dry_run=dry_run)))


def _confirm(count: int, yes: bool) -> None:
    if count > _UNCONFIRMED_MAX and not yes:
        click.confirm(f"The stretch has {count:,} occurrences. Make all of them?", abort=True, err=True)


def _lines(asked: BackfillAsked, job: str, rate: float, *, dry_run: bool) -> list[str]:
    first = f", from {moment(asked.first[0])}" if asked.first else ""
    if asked.backfill_id is not None:
        return [
            f"backfill {asked.backfill_id}: {some(asked.count, 'occurrence')}{first}, {rate:g} a second",
            f"how far it has come: duly jobs backfills {quote(job)}",
            f"to stop it: duly jobs cancel-backfill {asked.backfill_id}",
        ]
    shown = [f"      {moment(one)}" for one in asked.first] if dry_run else []
    least = "at least " if asked.is_partial else ""
    return [f"{least}{some(asked.count, 'occurrence')}{first}; nothing was made", *shown]


async def _cancel(settings: Settings, backfill_id: UUID, as_json: bool) -> None:
    async with connected(settings) as client:
        taken = (await client.backfills.cancel(backfill_id)).taken_back
    if as_json:
        print_json({"backfill_id": backfill_id, "taken_back": taken})
    else:
        say(f"backfill {backfill_id}: cancelled, and {some(taken, 'run')} taken back that had not started")


def _moment(text: str, what: str) -> datetime:
    found = read_moment(text, what)
    assert found is not None
    return check_moment(found, what)
