"""The entry of outbound calls: every call to an address that a tenant named goes through `Caller.call`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from duly.log import Log
from duly.outbound.addresses import Address
from duly.outbound.errors import NotAllowed, NotFound, OutboundError
from duly.outbound.guard import Guard
from duly.outbound.transport import Answer, PinnedTransport, Request

T = TypeVar("T")


class DeadlinePassed(OutboundError):
    """No whole response came within the deadline."""


class Caller:
    """The guard and the transport, under one deadline. Lives on one loop."""

    def __init__(self, guard: Guard, transport: PinnedTransport, log: Log) -> None:
        self._guard = guard
        self._transport = transport
        self._log = log

    def check(self, url: str) -> None:
        """Refuse a URL that is not allowed by itself. Raises InvalidOption, NotAllowed."""
        self._guard.check(url)

    async def look_up(self, url: str, *, tenant: int, seconds: float) -> None:
        """Check, within `seconds`, whether there is an address that may be called. Raises InvalidOption and OutboundError."""
        await self.within(seconds, tenant, self._guard.pin(url, tenant))

    async def call(self, url: str, request: Request, *, tenant: int, seconds: float) -> Answer:
        """Look up, connect, send and read within `seconds`. Raises InvalidOption and OutboundError."""
        return await self.within(seconds, tenant, self._call(url, request, tenant))

    async def addresses_of(self, scheme: str, host: str, port: int, *, tenant: int) -> tuple[Address, ...]:
        """Return the addresses of a server that is not called over HTTP. Raises InvalidOption, NotAllowed, NotFound."""
        bracketed = f"[{host}]" if ":" in host else host
        try:
            return (await self._guard.pin(f"http://{bracketed}:{port}/", tenant)).addresses
        except (NotAllowed, NotFound) as error:
            raise type(error)(str(error).replace("http://", f"{scheme}://", 1), error.detail) from None

    async def _call(self, url: str, request: Request, tenant: int) -> Answer:
        return await self._transport.send(await self._guard.pin(url, tenant), request)

    async def within(self, seconds: float, tenant: int, calling: Coroutine[Any, Any, T]) -> T:
        """Await a call that goes out, within `seconds`. Raises DeadlinePassed."""
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                return await calling
        except TimeoutError:
            if not scope.expired():
                raise
            raise DeadlinePassed(f"no complete response within {seconds:g} s") from None
        except OutboundError as error:
            self._log.info("call_failed", tenant=tenant, error=type(error).__name__, detail=error.detail)
            raise

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()
