"""Limits: how much may be under way at once, in all and under a key."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from duly.client.asynchronous.transport import AsyncResource
from duly.client.requests import getting, given, listing, path, putting, query_of, removing
from duly.wire.gates import Gate, GateLimits, GateRate
from duly.wire.limits import Limit


class AsyncLimits(AsyncResource):
    """At most so many runs at once: of everything, a queue, a tenant, or a tenant's share of a queue."""

    def list(self) -> AsyncIterator[Limit]:
        """Return all limits, the widest first, and how much of each is under way."""
        return self._line.pages(listing(path("limits"), Limit))

    async def put(
        self, places: int, *, everything: bool = False, queue: str | None = None, tenant: int | None = None
    ) -> Limit:
        """Let at most `places` runs of what is named be under way at once, from the next claim on."""
        body = given(places=places, all=everything, queue=queue, tenant=tenant)
        return await self._line.ask(putting(path("limits"), Limit, body))

    async def remove(self, *, everything: bool = False, queue: str | None = None, tenant: int | None = None) -> None:
        """Take a limit away. Raises NotFound."""
        ask = removing(path("limits"))
        query = query_of(given(all=everything or None, queue=queue, tenant=tenant))
        await self._line.ask(msgspec.structs.replace(ask, query=query))


class AsyncGates(AsyncResource):
    """Keys, by name."""

    def list(self, *, page_size: int | None = None) -> AsyncIterator[Gate]:
        """Return all keys that are in use or limited, in their order."""
        return self._line.pages(listing(path("gates"), Gate, page_size=page_size))

    async def get(self, key: str) -> Gate:
        """Read a key. Raises NotFound."""
        return await self._line.ask(getting(path("gates", key), Gate))

    async def limit(self, key: str, *, limit: int | None = None, rate: GateRate | None = None) -> Gate:
        """Set what a key allows, whatever its runs carry; what is left out is left to them. Raises Invalid."""
        return await self._line.ask(putting(path("gates", key), Gate, GateLimits(limit=limit, rate=rate)))

    async def lift(self, key: str) -> None:
        """Take the limits of a key away. Raises NotFound."""
        await self._line.ask(removing(path("gates", key)))
