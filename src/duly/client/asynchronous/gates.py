"""Gates: the keys that hold runs back, and limits that are set while runs wait."""

from __future__ import annotations

from collections.abc import AsyncIterator

from duly.client.asynchronous.transport import AsyncLine
from duly.client.paging import listing
from duly.client.requests import getting, path, putting, removing
from duly.wire.gates import Gate, GateLimits, GateRate


class AsyncGates:
    """Keys, by name."""

    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    def list(self, *, page_size: int | None = None) -> AsyncIterator[Gate]:
        """Give all keys that are in use or limited, in their order."""
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
