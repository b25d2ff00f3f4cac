"""Backfills: create the occurrences of a span again, show their progress, and stop them."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from shlex import quote
from typing import Literal
from uuid import UUID

import click

from duly.cli.client import lists, with_client
from duly.cli.flags.arguments import read_moment
from duly.cli.flags.filters import first, limit_option
from duly.cli.flags.names import job_id_of
from duly.cli.render.output import Columns, answer, moment
from duly.cli.render.say import confirm
from duly.client.asynchronous.client import AsyncClient
from duly.domain.counting import some
from duly.domain.jobs.job import check_moment
from duly.wire.jobs.verbs import BackfillCreated, BackfillStatus

_UNCONFIRMED_MAX = 10_000

COLUMNS: Columns = {
    "id": "backfill_id",
    "job": "job_id",
    "why": lambda one: "missed" if one.origin == "schedule" else "requested",
    "state": "state",
    "created": lambda one: f"{one.created} of {one.total}",
    "from": "from_at",
    "to": "to_at",
    "rate": lambda one: f"{one.rate:g}/s",
}


@click.command("backfill")
@click.argument("job", metavar="JOB")
@click.option("--from", "start", required=True, metavar="MOMENT", help="Start of the range, with an offset.")
@click.option("--to", "end", required=True, metavar="MOMENT", help="End of the range, exclusive.")
@click.option("--rate", default=1.0, show_default=True, type=float, help="How many a second.")
@click.option(
    "--overlap",
    default="queue",
    show_default=True,
    type=click.Choice(["queue", "allow"]),
    help="One after the other, or in parallel.",
)
@click.option("--dry-run", is_flag=True, help="Count only, and show the first.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@with_client()
async def backfill_job(
    client: AsyncClient,
    job: str,
    start: str,
    end: str,
    rate: float,
    overlap: Literal["queue", "allow"],
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Create the occurrences of JOB in a span again, below everything on time.

    They wait for each other by default, and the schedule is not moved. More than 10,000 need a
    confirmation.
    """
    stretch = _moment(start, "from"), _moment(end, "to")
    job_id = await job_id_of(client, job)
    make = partial(client.jobs.backfill, job_id, *stretch, rate=rate, overlap=overlap, confirm=True)
    backfill = await make(dry_run=True)
    if not dry_run and backfill.count:
        _confirm(backfill.count, yes or backfill.is_partial)  # More than can be requested are refused.
        backfill = await make(dry_run=False)
    document = {name: getattr(backfill, name) for name in ("backfill_id", "count", "first", "is_partial")}
    answer(as_json, document, *_lines(backfill, job, rate, dry_run=dry_run))


@click.command("backfills")
@click.argument("job", metavar="[JOB]", required=False)
@limit_option
@lists(COLUMNS, "no backfills; start one: duly jobs backfill JOB --from … --to …")
async def list_backfills(client: AsyncClient, job: str | None, limit: int) -> list[BackfillStatus]:
    """List the backfills of JOB or of all, the newest first."""
    return await first(client.backfills.list(None if job is None else await job_id_of(client, job)), limit)


@click.command("cancel-backfill")
@click.argument("backfill_id", metavar="BACKFILL", type=click.UUID)
@with_client()
async def cancel(client: AsyncClient, backfill_id: UUID, as_json: bool) -> None:
    """Stop BACKFILL, and remove its runs that have not started."""
    taken = (await client.backfills.cancel(backfill_id)).recalled
    words = f"backfill {backfill_id}: cancelled, and {some(taken, 'run')} taken back that had not started"
    answer(as_json, {"backfill_id": backfill_id, "recalled": taken}, words)


def _confirm(count: int, yes: bool) -> None:
    if count > _UNCONFIRMED_MAX and not yes:
        confirm(f"The range has {count:,} occurrences. Create all of them?")


def _lines(backfill: BackfillCreated, job: str, rate: float, *, dry_run: bool) -> list[str]:
    first = f", from {moment(backfill.first[0])}" if backfill.first else ""
    if backfill.backfill_id is not None:
        return [
            f"backfill {backfill.backfill_id}: {some(backfill.count, 'occurrence')}{first}, {rate:g} a second",
            f"how far it has come: duly jobs backfills {quote(job)}",
            f"to stop it: duly jobs cancel-backfill {backfill.backfill_id}",
        ]
    shown = [f"      {moment(one)}" for one in backfill.first] if dry_run else []
    least = "at least " if backfill.is_partial else ""
    return [f"{least}{some(backfill.count, 'occurrence')}{first}; nothing was created", *shown]


def _moment(text: str, what: str) -> datetime:
    found = read_moment(text, what)
    assert found is not None
    return check_moment(found, what)
