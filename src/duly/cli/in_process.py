"""The API in the process of a command: the same application that `duly api` serves, over a database and without a socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import httpx2

from duly.api.app import create_for_one
from duly.api.auth.local import for_local
from duly.cli.connect import opened
from duly.cli.flags.settings import span
from duly.cli.up.archive import archive_of
from duly.cli.up.dispatcher import opened_dispatcher
from duly.cli.up.egress import submitted_check
from duly.domain.targets.target import Allowed
from duly.log import Log
from duly.settings import Settings, shown
from duly.store.connection.local import this_account

_UNREAD_MAX = 16  # messages of a response that wait to be read


@asynccontextmanager
async def in_process(settings: Settings) -> AsyncIterator[httpx2.AsyncBaseTransport]:
    """Open the database and serve the API to this process, as the operator. Raises DatabaseUnusable."""
    if not settings.is_given("log_level"):
        logging.getLogger("duly.api").setLevel(logging.ERROR)  # the caller sees the errors itself
    allowed = Allowed(check_call=submitted_check(settings))
    age_limit = span(settings, "queue_age_limit")
    async with (
        opened(settings) as database,
        opened_dispatcher(
            database, allowed, age_limit, logs_in=False, settings=shown(settings), archive=archive_of(settings)
        ) as dispatcher,
    ):
        yield InProcessTransport(for_local(create_for_one(dispatcher, Log("api")), this_account()))
        dispatcher.close()


class Opening(httpx2.AsyncBaseTransport):
    """Opens the database and the API over it at the first request: errors of the command itself come first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opened = AsyncExitStack()
        self._transport: httpx2.AsyncBaseTransport | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request. Raises DatabaseUnusable."""
        if self._transport is None:
            self._transport = await self._opened.enter_async_context(in_process(self._settings))
        return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the database."""
        await self._opened.aclose()


class InProcessTransport(httpx2.AsyncBaseTransport):
    """Passes requests to an application, and returns its response as it is written."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request."""
        exchange = _Exchange(await request.aread())
        task = asyncio.create_task(exchange.run(self._app, _scope(request)))
        try:
            start = await exchange.next()
        except BaseException:
            await _end(task)
            raise
        return httpx2.Response(start["status"], headers=start["headers"], stream=_Body(exchange, task))


class _Exchange:
    """One request and its response."""

    def __init__(self, body: bytes) -> None:
        self._request: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]
        self._sent: asyncio.Queue[dict[str, Any] | BaseException | None] = asyncio.Queue(_UNREAD_MAX)
        self._hung_up = asyncio.Event()

    async def run(self, app: Any, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._sent.put)
        except Exception as error:  # noqa: BLE001 - the reader of the response gets it
            await self._sent.put(error)
        await self._sent.put(None)

    async def next(self) -> dict[str, Any]:
        """Return the next message; raises what the application raised."""
        message = await self._sent.get()
        if isinstance(message, BaseException):
            raise message
        assert message is not None, "the application ended without a response"
        return message

    async def _receive(self) -> dict[str, Any]:
        if self._request:
            return self._request.pop()
        await self._hung_up.wait()
        return {"type": "http.disconnect"}

    def hang_up(self) -> None:
        self._hung_up.set()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, exchange: _Exchange, task: asyncio.Task[None]) -> None:
        self._exchange = exchange
        self._task = task

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._exchange.next()
            if body := message.get("body"):
                yield body
            if not message.get("more_body", False):
                return

    async def aclose(self) -> None:
        self._exchange.hang_up()
        await _end(self._task)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _scope(request: httpx2.Request) -> dict[str, Any]:
    url = request.url
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": url.scheme,
        "path": url.path,
        "raw_path": url.raw_path.split(b"?")[0],
        "query_string": url.query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "client": None,
        "server": None,
    }
