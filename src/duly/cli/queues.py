"""`duly queues`: what waits, how long it has waited, who serves it, and whether it is paused."""

from __future__ import annotations

from datetime import timedelta

import click

from duly.cli.desk import at_desk
from duly.cli.lazy import ListingGroup
from duly.cli.options import with_settings
from duly.cli.output import Listing, json_option, listing_options, show_list
from duly.cli.pause import pause_scope, reason_option, resume_scope
from duly.domain.hold import Scope
from duly.settings import Settings

COLUMNS = {
    "queue": lambda row: row["queue"],
    "ready": lambda row: row["ready"],
    "oldest": lambda row: timedelta(seconds=row["oldest_age_seconds"]) if row["ready"] else None,
    "workers": lambda row: row["workers"],
    "slots": lambda row: row["slots"],
    "state": lambda row: row["state"],
    "needs attention": lambda row: row["attention"],
}


@click.group(cls=ListingGroup)
def queues() -> None:
    """Show, pause and resume queues. Without a command: show."""


@queues.command("list")
@listing_options
@with_settings("url")
def list_queues(settings: Settings, listing: Listing) -> None:
    """Show what waits in each queue, and the command that would serve what nobody serves."""
    show_list(settings, listing, lambda desk: desk.queues(), COLUMNS, "no queue has work, and no worker lives", at_desk)


@queues.command("pause")
@click.argument("queue", metavar="QUEUE")
@reason_option
@json_option
@with_settings("url")
def pause_queue(settings: Settings, queue: str, reason: str, as_json: bool) -> None:
    """Let nothing new of QUEUE start; the same as `duly pause --queue QUEUE`."""
    pause_scope(settings, Scope(queue=queue), reason, as_json=as_json)


@queues.command("resume")
@click.argument("queue", metavar="QUEUE")
@json_option
@with_settings("url")
def resume_queue(settings: Settings, queue: str, as_json: bool) -> None:
    """Let QUEUE go on; the same as `duly resume --queue QUEUE`."""
    resume_scope(settings, Scope(queue=queue), as_json=as_json)
