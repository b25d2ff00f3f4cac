"""`duly workers`: who lives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import click

from duly.cli.desk import at_desk
from duly.cli.options import with_settings
from duly.cli.output import Listing, listing_options, show_list
from duly.settings import Settings


def _weighed(queues: Sequence[str], weights: Sequence[int]) -> list[str]:
    """Name queues as they are given to a worker: with their weight where it is not 1."""
    pairs = zip_longest(queues, weights[: len(queues)], fillvalue=1)
    return [f"{queue}" if weight == 1 else f"{queue}={weight}" for queue, weight in pairs]


COLUMNS = {
    "id": lambda row: row["worker_id"],
    "name": lambda row: row["name"],
    "version": lambda row: row["version"],
    "queues": lambda row: _weighed(row["queues"], row["weights"]),
    "handlers": lambda row: row["handlers"],
    "slots": lambda row: row["slots"],
    "up for": lambda row: row["read_at"] - row["started_at"],
    "lease": lambda row: row["until"] - row["read_at"] if row["until"] > row["read_at"] else "expired",
}


@click.command
@listing_options
@with_settings("url")
def workers(settings: Settings, listing: Listing) -> None:
    """List the workers that live, what they serve and how long their lease still holds."""

    empty = "no worker lives; start one: duly worker module:app"
    show_list(settings, listing, lambda desk: desk.workers(), COLUMNS, empty, at_desk)
