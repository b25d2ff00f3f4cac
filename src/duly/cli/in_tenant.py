"""The tenant that a local caller acts in; separate from `in_process`, because beside a `duly up` no command loads a server."""

from __future__ import annotations

from urllib.parse import quote

import httpx2

from duly.wire.keys import TENANT_HEADER


class InTenant(httpx2.AsyncBaseTransport):
    """Adds the name of a tenant to each request of a local caller."""

    def __init__(self, transport: httpx2.AsyncBaseTransport, tenant: str) -> None:
        self._transport = transport
        self._tenant = quote(tenant)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Pass one request on."""
        request.headers[TENANT_HEADER] = self._tenant
        return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the transport below."""
        await self._transport.aclose()
