"""Responses: the value that a route returns, and the bytes that are sent for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import litestar
import msgspec
from litestar.response import Stream

from duly.wire import problems

JSON = "application/json"
NDJSON = "application/x-ndjson"
EVENT_STREAM = "text/event-stream"
ALWAYS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Response(msgspec.Struct, frozen=True):
    """A response: a shape, or a stream of bytes that is written as it comes.

    `then` is done after the commit, and gives the response instead: what waits for others must hold nothing.
    """

    status: int
    body: Any = None
    headers: Mapping[str, str] = {}
    stream: AsyncIterator[bytes] | None = None
    media_type: str = JSON
    then: Callable[[], Awaitable[Response]] | None = None

    def encoded(self) -> bytes:
        """Encode the body; a stored response is bytes already."""
        if self.body is None:
            return b""
        return self.body if isinstance(self.body, bytes) else problems.encode(self.body)


def sent(response: Response, headers: Mapping[str, str]) -> litestar.Response[Any]:
    """Turn a response into the one that the framework sends, with `headers` beside its own."""
    every = {**ALWAYS, **headers, **response.headers}
    if response.stream is not None:
        return Stream(response.stream, status_code=response.status, headers=every, media_type=response.media_type)
    return litestar.Response(
        response.encoded(), status_code=response.status, headers=every, media_type=response.media_type
    )
