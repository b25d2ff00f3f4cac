"""The selection of jobs or runs for a bulk change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import msgspec

from duly.client.requests import ApiRequest, Id, given, posting
from duly.wire.jobs.bulk import LIMIT_DEFAULT, ManyDone

MANY_SECONDS = 50.0  # the server takes up to a minute for a bulk change; ten seconds are waited for anything


class Matching(TypedDict, total=False):
    """`all` where no filter is given; up to `limit`, from `page_token` on; only counted with `dry_run`."""

    all: bool
    dry_run: bool
    limit: int | None
    page_token: str | None


class Chosen(Matching, total=False):
    """Jobs or runs by `filter`, by `ids`, or `all` of them."""

    filter: str
    ids: Sequence[Id]


def rest_of(chosen: Chosen, done: ManyDone) -> Chosen:
    """Return the selection for the request that goes on where the server stopped half way."""
    rest: Chosen = {**chosen, "page_token": done.next_page_token or ""}
    limit = chosen.get("limit")
    if limit is not None or not done.dry_run:
        rest["limit"] = (LIMIT_DEFAULT if limit is None else limit) - done.matched
    return rest


def both(first: ManyDone, then: ManyDone) -> ManyDone:
    """Add up the results of two requests, the second of which went on where the first had stopped."""
    return msgspec.structs.replace(
        then,
        matched=first.matched + then.matched,
        changed=first.changed + then.changed,
        sample=first.sample or then.sample,
        refused=[*first.refused, *then.refused],
    )


def changing_many(where: str, chosen: Chosen, **more: object) -> ApiRequest[ManyDone]:
    """Build the request of a bulk change."""
    return posting(where, ManyDone, given(**chosen, **more), seconds_more=MANY_SECONDS)
