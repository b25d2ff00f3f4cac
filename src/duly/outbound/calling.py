"""The way out: everything that calls an address which a tenant named goes through `Caller.call`."""

from __future__ import annotations

import asyncio

from duly.log import Log
from duly.outbound.errors import OutboundError
from duly.outbound.guard import Guard
from duly.outbound.transport import Answer, Request, Transport


class DeadlinePassed(OutboundError):
    """No whole answer came within the deadline."""


class Caller:
    """The guard and the transport, under one deadline. Lives on one loop."""

    def __init__(self, guard: Guard, transport: Transport, log: Log) -> None:
        self._guard = guard
        self._transport = transport
        self._log = log

    def check(self, url: str) -> None:
        """Refuse what a URL itself shows not to be allowed. Raises InvalidOption, NotAllowed."""
        self._guard.check(url)

    async def call(self, url: str, request: Request, *, tenant: int, seconds: float) -> Answer:
        """Look up, connect, send and read within `seconds`. Raises InvalidOption and OutboundError."""
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                pin = await self._guard.pin(url, tenant)
                return await self._transport.send(pin, request)
        except TimeoutError:
            if not scope.expired():
                raise
            raise DeadlinePassed(f"no whole answer within {seconds:g} s") from None
        except OutboundError as error:
            self._log.info("call_failed", tenant=tenant, error=type(error).__name__, detail=error.detail)
            raise

    async def close(self) -> None:
        """Hang up everywhere."""
        await self._transport.close()
