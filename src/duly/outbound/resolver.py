"""Bounded name lookups: the system's own lookup holds a thread for as long as a name server likes.

So many are under way at once, and of one tenant a part of them; others wait, because our own limits say nothing about a
destination. A caller that gives up leaves its thread counted until the system returns. Concurrent lookups of a name
share the answer, which is cached for a few seconds. Lives on one loop.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from duly.clock import Clock

LOOKUPS_MAX = 64
LOOKUPS_PER_TENANT_MAX = 16
KEPT_SECONDS = 5.0
NAMES_KEPT_MAX = 4_096


class Unresolved(Exception):
    """The name has no address, or no answer came in time."""


class Resolver(Protocol):
    """Returns the addresses of a name."""

    async def addresses_of(self, host: str, tenant: int) -> Sequence[str]:
        """Look a name up, in the order in which its addresses should be tried. Raises Unresolved."""
        ...


def system_lookup(host: str) -> list[str]:
    """Look a name up with the system, blocking. Raises OSError, or UnicodeError for an invalid name."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class _Lookup:
    """A name that is being looked up, and how many callers of each tenant wait for it."""

    def __init__(self, answer: asyncio.Future[Sequence[str]]) -> None:
        self.answer = answer
        self.waiting: Counter[int] = Counter()


class SystemResolver:
    """Looks names up in threads of its own, which the end of the process does not await."""

    def __init__(self, clock: Clock, lookup: Callable[[str], Sequence[str]] = system_lookup) -> None:
        self._clock = clock
        self._lookup = lookup
        self._lookups: dict[str, _Lookup] = {}
        self._queue: dict[str, _Lookup] = {}  # those that wait to be started, in order
        self._under_way: Counter[int] = Counter()  # by tenant
        self._kept: dict[str, tuple[float, Sequence[str]]] = {}

    async def addresses_of(self, host: str, tenant: int) -> Sequence[str]:
        """Look a name up, unless it is cached. Raises Unresolved."""
        kept = self._kept.get(host)
        if kept is not None and self._clock.monotonic() < kept[0]:
            return kept[1]
        lookup = self._lookups.get(host) or self._enqueue(host)
        lookup.waiting[tenant] += 1
        self._start_next()
        try:
            return await asyncio.shield(lookup.answer)  # others may wait for the same answer
        finally:
            lookup.waiting[tenant] -= 1
            lookup.waiting += Counter()  # forgets tenants without waiters
            if not lookup.waiting:
                self._dequeue(host, lookup)

    def _enqueue(self, host: str) -> _Lookup:
        lookup = _Lookup(asyncio.get_running_loop().create_future())
        self._lookups[host] = self._queue[host] = lookup
        return lookup

    def _dequeue(self, host: str, lookup: _Lookup) -> None:
        if self._queue.get(host) is lookup:
            del self._queue[host], self._lookups[host]

    def _start_next(self) -> None:
        """Start what may be: a tenant that has its part under way delays no other."""
        for host, lookup in list(self._queue.items()):
            if self._under_way.total() >= LOOKUPS_MAX:
                return
            tenant = next((one for one in lookup.waiting if self._under_way[one] < LOOKUPS_PER_TENANT_MAX), None)
            if tenant is not None:
                del self._queue[host]
                self._start(host, tenant, lookup.answer)

    def _start(self, host: str, tenant: int, answer: asyncio.Future[Sequence[str]]) -> None:
        self._under_way[tenant] += 1
        loop = asyncio.get_running_loop()
        thread = threading.Thread(target=self._look_up, args=(loop, host, tenant, answer), name="resolver", daemon=True)
        thread.start()

    def _look_up(
        self, loop: asyncio.AbstractEventLoop, host: str, tenant: int, answer: asyncio.Future[Sequence[str]]
    ) -> None:
        found: Sequence[str] | Unresolved
        try:
            found = self._lookup(host) or Unresolved("it has no address")
        except (OSError, UnicodeError) as error:
            found = Unresolved(str(error))
        try:
            loop.call_soon_threadsafe(self._answered, host, tenant, answer, found)
        except RuntimeError:
            return  # The loop has ended meanwhile.

    def _answered(
        self, host: str, tenant: int, answer: asyncio.Future[Sequence[str]], found: Sequence[str] | Unresolved
    ) -> None:
        del self._lookups[host]
        self._under_way[tenant] -= 1
        self._under_way += Counter()  # forgets tenants that have none under way
        self._start_next()
        if answer.done():
            return
        if isinstance(found, Unresolved):
            answer.set_exception(found)
            answer.exception()  # no reader may be left
            return
        self._keep(host, found)
        answer.set_result(found)

    def _keep(self, host: str, found: Sequence[str]) -> None:
        self._kept.pop(host, None)
        while len(self._kept) >= NAMES_KEPT_MAX:
            self._kept.pop(next(iter(self._kept)))
        self._kept[host] = (self._clock.monotonic() + KEPT_SECONDS, found)
