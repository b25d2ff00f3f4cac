"""`duly queues`: backlogs, their oldest age, their workers, and pauses."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import click

from duly.cli.client import with_client
from duly.cli.commands.pause import ScopeFlags, pause_scope, reason_option, resume_scope
from duly.cli.flags.arguments import read_duration
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Columns, Listing, Row, answer, listing_options, show_list
from duly.cli.render.queue import attention, queue_row, queue_state
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import Forbidden
from duly.domain.duration import parse_option
from duly.domain.limits.overload import check_age_limit

COLUMNS: Columns = {
    "queue": "name",
    "ready": "ready",
    "oldest": lambda queue: timedelta(seconds=queue.oldest_age_seconds) if queue.ready else None,
    "workers": "workers",
    "slots": "slots",
    "desired": "desired_workers",
    "upcoming": lambda queue: busiest_minute(queue.upcoming),
    "state": queue_state,
    "needs attention": lambda queue: "; ".join(attention(queue)),
}


def busiest_minute(counts: Sequence[int]) -> str:
    """Return the busiest of the next minutes: its fires, and when it begins."""
    most = max(counts, default=0)
    if not most:
        return ""
    begins = list(counts).index(most)
    return f"{most} in {begins} min" if begins else f"{most} within 1 min"


@click.group(cls=ListingGroup)
def queues() -> None:
    """Show, pause, resume and set queues. Without a command: show."""


@queues.command("list")
@with_client(options=listing_options)
async def list_queues(client: AsyncClient, listing: Listing) -> None:
    """Show the backlog of each queue, and the command that would serve an unserved one."""

    async def read() -> list[Row]:
        try:
            found = [queue async for queue in client.queues.list(everyone=True)]
        except Forbidden:
            found = [queue async for queue in client.queues.list()]
        return [queue_row(queue) for queue in found] if listing.as_json else found

    await show_list(listing, read, COLUMNS, "no queue has work, and no worker is running")


@queues.command("pause")
@click.argument("queue", metavar="QUEUE")
@reason_option
@with_client()
async def pause_queue(client: AsyncClient, queue: str, reason: str, as_json: bool) -> None:
    """Pause QUEUE; the same as `duly pause --queue QUEUE`."""
    await pause_scope(client, ScopeFlags(queue=queue), reason, as_json=as_json)


@queues.command("resume")
@click.argument("queue", metavar="QUEUE")
@with_client()
async def resume_queue(client: AsyncClient, queue: str, as_json: bool) -> None:
    """Resume QUEUE; the same as `duly resume --queue QUEUE`."""
    await resume_scope(client, ScopeFlags(queue=queue), as_json=as_json)


@queues.command("set")
@click.argument("queue", metavar="QUEUE")
@click.option(
    "--age-limit",
    metavar="DURATION",
    help="Age of the oldest due run above which low priority jobs are refused: PT1S to P1D, or `default`.",
)
@with_client()
async def set_queue(client: AsyncClient, queue: str, age_limit: str | None, as_json: bool) -> None:
    """Change the settings of QUEUE; they take effect within a second."""
    if age_limit is None:
        raise click.UsageError("no change given: use --age-limit")
    span = None if age_limit == "default" else parse_option(read_duration(age_limit), "age limit")
    limit = None if span is None else check_age_limit(span).total_seconds()
    await client.queues.change(queue, age_limit=limit)
    words = f"its oldest run may be {'as old as by default' if limit is None else f'{limit:g} s old'}"
    answer(as_json, {"queue": queue, "age_limit_seconds": limit}, f"queue {queue}: {words}")
