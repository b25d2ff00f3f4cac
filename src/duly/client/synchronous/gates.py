# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""Gates: the keys that hold runs back, and limits that are set while runs wait."""

from __future__ import annotations

from collections.abc import Iterator

from duly.client.paging import listing
from duly.client.requests import getting, path, putting, removing
from duly.client.synchronous.transport import Line
from duly.wire.gates import Gate, GateLimits, GateRate


class Gates:
    """Keys, by name."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def list(self, *, page_size: int | None = None) -> Iterator[Gate]:
        """Give all keys that are in use or limited, in their order."""
        return self._line.pages(listing(path("gates"), Gate, page_size=page_size))

    def get(self, key: str) -> Gate:
        """Read a key. Raises NotFound."""
        return self._line.ask(getting(path("gates", key), Gate))

    def limit(self, key: str, *, limit: int | None = None, rate: GateRate | None = None) -> Gate:
        """Set what a key allows, whatever its runs carry; what is left out is left to them. Raises Invalid."""
        return self._line.ask(putting(path("gates", key), Gate, GateLimits(limit=limit, rate=rate)))

    def lift(self, key: str) -> None:
        """Take the limits of a key away. Raises NotFound."""
        self._line.ask(removing(path("gates", key)))
