"""Which jobs or runs are meant where many are changed at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from duly.client.asking import Ask, Id, given, posting
from duly.wire.bulk import ManyDone

MANY_SECONDS = 50.0  # The server takes a minute for many; ten seconds are waited for anything.


class Chosen(TypedDict, total=False):
    """Those that fit `filter`, those of `ids`, or `all`; up to `limit`, from `page_token` on; only counted with `dry_run`."""

    filter: str
    ids: Sequence[Id]
    all: bool
    dry_run: bool
    limit: int
    page_token: str


def changing_many(where: str, chosen: Chosen, **more: object) -> Ask[ManyDone]:
    """Ask for many to be changed."""
    return posting(where, ManyDone, given(**chosen, **more), seconds_more=MANY_SECONDS)
