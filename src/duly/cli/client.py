"""The client of a command: of the server that --url or DULY_URL names, of the `duly up` of this folder, or of a
database.

A typed address goes before a configured one. With a database alone, the API runs in the process of the command. Both
the `duly up` and the database are used as the operator, and the audit names the account.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from duly.cli.flags.settings import Command, with_settings
from duly.cli.render.output import Columns, Listing, json_option, listing_options, show_list
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import Unavailable
from duly.settings import Settings, SettingsError

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
_DEADLINE_SECONDS, _CONNECT_SECONDS = 20.0, 1.5  # a person waits
_UNKNOWN = "may or may not have been done; before you retry, look with `duly audit`, and for runs with `duly runs`"


def is_remote(settings: Settings) -> bool:
    """Return whether we speak to a server over HTTP; a typed database goes before a configured address."""
    typed = [name for name in ("url", "database_url", "data") if settings.sources[name].startswith("--")]
    return settings.url is not None and ("url" in typed or not typed)


def with_client(*names: str, options: Callable[[Command], Command] = json_option) -> Callable[[Command], Command]:
    """Turn into a command a coroutine function that takes `client`, and the values of its flags: --json, --url and settings."""

    def decorate(function: Command) -> Command:
        @wraps(function)
        def call(settings: Settings, **given: Any) -> Any:
            return run_request(settings, partial(function, **given))

        return options(with_settings("url", *names)(call))

    return decorate


def lists(columns: Columns, empty: str) -> Callable[[Command], Command]:
    """Turn into a command a coroutine function that reads rows with `client`: they are shown in columns, or `empty` is
    printed.
    """

    def decorate(function: Command) -> Command:
        @wraps(function)
        async def call(client: AsyncClient, listing: Listing, **given: Any) -> None:
            await show_list(listing, partial(function, client, **given), columns, empty)

        return with_client(options=listing_options)(call)

    return decorate


def run_request(settings: Settings, request: Callable[[AsyncClient], Awaitable[T]]) -> T:
    """Connect, send the request, and return the response.

    Raises InvalidAddress, DatabaseUnusable, and what the request raises.
    """

    return asyncio.run(_answer(settings, request))


async def _answer(settings: Settings, request: Callable[[AsyncClient], Awaitable[T]]) -> T:
    async with connected(settings) as client:
        try:
            return await request(client)
        except asyncio.CancelledError:  # By Ctrl-C.
            if (write := client.unanswered_write) is not None:
                say(f"duly: interrupted: {write} {_UNKNOWN}", err=True)
            raise
        except Unavailable as error:
            raise _in_flags(error) from None


def _in_flags(error: Unavailable) -> Unavailable:
    """Suggest a retry with a key only where a flag takes one."""
    key = error.idempotency_key
    if key is None or key not in error.remedy:
        return error
    flags = [name for parameter in click.get_current_context().command.params for name in parameter.opts]
    once = f"retry with --key {key}: it is carried out once"
    remedy = f"It may or may not have been done; {once}." if "--key" in flags else f"It {_UNKNOWN}."
    return Unavailable(error.detail, error.status, error.code, remedy, error.request_id, idempotency_key=key)


def connected(settings: Settings) -> AsyncClient:
    """Return the client that the settings lead to; nothing is sent before its first request.

    Raises InvalidAddress, SettingsError.
    """
    if is_remote(settings):
        if settings.as_tenant is not None:
            raise SettingsError(
                f"{settings.sources['as_tenant']} does not go with {settings.sources['url']}: a key acts in its own tenant."
                " Use a key of that tenant, or the command where no key is needed"
            )
        return AsyncClient(
            settings.url, settings.api_key, deadline=_DEADLINE_SECONDS, connect_deadline=_CONNECT_SECONDS
        )
    if (socket := _socket(settings)) is not None:
        return _keyless(settings, "http://duly-up", socket, _DEADLINE_SECONDS)
    from duly.cli.in_process import Opening  # It takes the server's modules.

    # The database's own code retries: a second try here would only wait longer.
    return _keyless(settings, "http://in-process", Opening(settings), 0.0)


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
        from duly.cli.in_tenant import InTenant

        transport = InTenant(transport, settings.as_tenant)
    return AsyncClient(url, "none", deadline=deadline, transport=transport)
