# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""Limits: how much may be under way at once."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from duly.client.paging import listing
from duly.client.requests import given, path, putting, query_of, removing
from duly.client.synchronous.transport import Line
from duly.wire.limits import Limit


class Limits:
    """At most so many runs at once: of everything, a queue, a tenant, or a tenant's share of a queue."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def list(self) -> Iterator[Limit]:
        """Give all limits, the widest first, and how much of each is under way."""
        return self._line.pages(listing(path("limits"), Limit))

    def put(
        self, places: int, *, everything: bool = False, queue: str | None = None, tenant: int | None = None
    ) -> Limit:
        """Let at most `places` runs of what is named be under way at once, from the next claim on."""
        body = given(places=places, all=everything, queue=queue, tenant=tenant)
        return self._line.ask(putting(path("limits"), Limit, body))

    def remove(self, *, everything: bool = False, queue: str | None = None, tenant: int | None = None) -> None:
        """Take a limit away. Raises NotFound."""
        ask = removing(path("limits"))
        query = query_of(given(all=everything or None, queue=queue, tenant=tenant))
        self._line.ask(msgspec.structs.replace(ask, query=query))
