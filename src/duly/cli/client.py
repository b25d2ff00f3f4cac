"""The client of a command: of the Duly that --url or DULY_URL names, of the `duly up` of this folder, or of a database.

An address that was typed goes before one from elsewhere. With a database alone, the API runs in the process of the command. Both
the `duly up` and the database are used as the operator, and the audit names the account.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from duly.client.asynchronous.client import AsyncClient
from duly.settings import Settings, SettingsError

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
_DEADLINE_SECONDS = 20.0  # A person waits.
_IN_PROCESS = "http://in-process"


def is_remote(settings: Settings) -> bool:
    """Say whether we speak to a Duly over HTTP; a database that was typed goes before an address that was not."""
    typed = [name for name in ("url", "database_url", "data") if settings.sources[name].startswith("--")]
    return settings.url is not None and ("url" in typed or not typed)


def ask(settings: Settings, question: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """Connect, ask, and give the answer. Raises as `connected` does, and what asking raises."""

    async def answer() -> T:
        async with connected(settings) as client:
            return await question(client)

    return asyncio.run(answer())


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[AsyncClient]:
    """Connect to where the settings lead. Raises InvalidAddress, DatabaseUnusable, SettingsError."""
    if is_remote(settings):
        if settings.as_tenant is not None:
            raise SettingsError(
                f"{settings.sources['as_tenant']} does not go with {settings.sources['url']}: a key acts in its own tenant."
                " Use a key of that tenant, or the command where no key is needed"
            )
        async with AsyncClient(settings.url, settings.api_key, deadline=_DEADLINE_SECONDS) as client:
            yield client
    elif (socket := _socket(settings)) is not None:
        async with _keyless(settings, "http://duly-up", socket, _DEADLINE_SECONDS) as client:
            yield client
    else:
        from duly.cli.in_process import in_process  # It takes the server's modules.

        # The database is asked again by who asks it: a second try here would only wait longer.
        async with in_process(settings) as transport, _keyless(settings, _IN_PROCESS, transport, 0.0) as client:
            yield client


def _socket(settings: Settings) -> httpx2.AsyncBaseTransport | None:
    if settings.database_url is not None:
        return None
    from duly.cli.up.local_socket import answering

    path = answering(settings.data)
    if path is None:
        return None
    import httpx2

    return httpx2.AsyncHTTPTransport(uds=str(path))


def _keyless(settings: Settings, url: str, transport: httpx2.AsyncBaseTransport, deadline: float) -> AsyncClient:
    if settings.as_tenant is not None:
        from duly.cli.in_process import InTenant

        transport = InTenant(transport, settings.as_tenant)
    return AsyncClient(url, "none", deadline=deadline, transport=transport)
