"""`duly queues`: what waits, how long it has waited, who serves it, and whether it is paused."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import click

from duly.cli.client import connected
from duly.cli.commands.pause import Asked, pause_scope, reason_option, resume_scope
from duly.cli.flags.settings import with_settings
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Listing, Row, json_option, listing_options, print_json, show_list
from duly.cli.render.queue import attention, queue_row, queue_state
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import Forbidden
from duly.domain.duration import parse
from duly.domain.errors import InvalidOption, InvalidSchedule
from duly.domain.limits.overload import check_age_limit
from duly.settings import Settings

COLUMNS = {
    "queue": lambda queue: queue.name,
    "ready": lambda queue: queue.ready,
    "oldest": lambda queue: timedelta(seconds=queue.oldest_age_seconds) if queue.ready else None,
    "workers": lambda queue: queue.workers,
    "slots": lambda queue: queue.slots,
    "desired": lambda queue: queue.desired_workers,
    "coming": lambda queue: _coming(queue.coming),
    "state": queue_state,
    "needs attention": lambda queue: "; ".join(attention(queue)),
}


def _coming(counts: Sequence[int]) -> str:
    """Tell of the busiest of the next minutes: how many fire in it, and when it begins."""
    most = max(counts, default=0)
    if not most:
        return ""
    begins = list(counts).index(most)
    return f"{most} in {begins} min" if begins else f"{most} within 1 min"


@click.group(cls=ListingGroup)
def queues() -> None:
    """Show, pause, resume and set queues. Without a command: show."""


@queues.command("list")
@listing_options
@with_settings("url")
def list_queues(settings: Settings, listing: Listing) -> None:
    """Show what waits in each queue, and the command that would serve what nobody serves."""

    async def read(client: AsyncClient) -> list[Row]:
        try:
            found = [queue async for queue in client.queues.list(everyone=True)]
        except Forbidden:
            found = [queue async for queue in client.queues.list()]
        return [queue_row(queue) for queue in found] if listing.as_json else found

    show_list(settings, listing, read, COLUMNS, "no queue has work, and no worker lives")


@queues.command("pause")
@click.argument("queue", metavar="QUEUE")
@reason_option
@json_option
@with_settings("url")
def pause_queue(settings: Settings, queue: str, reason: str, as_json: bool) -> None:
    """Let nothing new of QUEUE start; the same as `duly pause --queue QUEUE`."""
    pause_scope(settings, Asked(queue=queue), reason, as_json=as_json)


@queues.command("resume")
@click.argument("queue", metavar="QUEUE")
@json_option
@with_settings("url")
def resume_queue(settings: Settings, queue: str, as_json: bool) -> None:
    """Let QUEUE go on; the same as `duly resume --queue QUEUE`."""
    resume_scope(settings, Asked(queue=queue), as_json=as_json)


@queues.command("set")
@click.argument("queue", metavar="QUEUE")
@click.option(
    "--age-limit",
    metavar="DURATION",
    help="How old its oldest due run may be before work of low priority is shed: PT1S to P1D, or `default`.",
)
@json_option
@with_settings("url")
def set_queue(settings: Settings, queue: str, age_limit: str | None, as_json: bool) -> None:
    """Say how QUEUE is to be; it takes effect within a second."""
    if age_limit is None:
        raise click.UsageError("say what: --age-limit")
    limit = None if age_limit == "default" else check_age_limit(_span(age_limit))
    asyncio.run(_set_queue(settings, queue, limit, as_json))


def _span(text: str) -> timedelta:
    try:
        return parse(float(text) if text.replace(".", "", 1).isdecimal() else text, "age limit")
    except InvalidSchedule as error:
        raise InvalidOption(str(error)) from None


async def _set_queue(settings: Settings, queue: str, limit: timedelta | None, as_json: bool) -> None:
    told = None if limit is None else limit.total_seconds()
    async with connected(settings) as client:
        await client.queues.change(queue, age_limit=told)
    if as_json:
        print_json({"queue": queue, "age_limit_seconds": told})
        return
    say(f"queue {queue}: its oldest run may be {'as old as by default' if told is None else f'{told:g} s old'}")
