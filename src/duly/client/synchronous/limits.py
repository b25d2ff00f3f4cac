# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""Limits of runs at once, by scope and by concurrency key."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from duly.client.requests import getting, given, listing, path, putting, query_of, removing
from duly.client.synchronous.transport import Resource
from duly.wire.concurrency_keys import ConcurrencyKey, ConcurrencyKeyLimits, ConcurrencyKeyRate
from duly.wire.limits import Limit


class Limits(Resource):
    """At most so many runs at once: of everything, a queue, a tenant, or a tenant's share of a queue."""

    def list(self) -> Iterator[Limit]:
        """Return all limits, the widest first, and how many runs of each are under way."""
        return self._transport.pages(listing(path("limits"), Limit))

    def put(
        self, slots: int, *, everything: bool = False, queue: str | None = None, tenant: int | None = None
    ) -> Limit:
        """Let at most `slots` runs of a scope run at once, from the next claim on."""
        body = given(slots=slots, all=everything, queue=queue, tenant=tenant)
        return self._transport.send(putting(path("limits"), Limit, body))

    def remove(self, *, everything: bool = False, queue: str | None = None, tenant: int | None = None) -> None:
        """Remove a limit. Raises NotFound."""
        request = removing(path("limits"))
        query = query_of(given(all=everything or None, queue=queue, tenant=tenant))
        self._transport.send(msgspec.structs.replace(request, query=query))


class ConcurrencyKeys(Resource):
    """Concurrency keys and rate limits, by name."""

    def list(self, *, page_size: int | None = None) -> Iterator[ConcurrencyKey]:
        """Return all keys that are in use or limited, in order."""
        return self._transport.pages(listing(path("concurrency-keys"), ConcurrencyKey, page_size=page_size))

    def get(self, key: str) -> ConcurrencyKey:
        """Read a key. Raises NotFound."""
        return self._transport.send(getting(path("concurrency-keys", key), ConcurrencyKey))

    def limit(self, key: str, *, limit: int | None = None, rate: ConcurrencyKeyRate | None = None) -> ConcurrencyKey:
        """Set the limits of a key, which override those of its runs; those left out come from the runs. Raises Invalid."""
        return self._transport.send(
            putting(path("concurrency-keys", key), ConcurrencyKey, ConcurrencyKeyLimits(limit=limit, rate=rate))
        )

    def unlimit(self, key: str) -> None:
        """Remove the limits of a key. Raises NotFound."""
        self._transport.send(removing(path("concurrency-keys", key)))
