"""Responses: the value that a route returns, and the bytes that are sent for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import litestar
import msgspec
from litestar.response import Stream

from duly.clock import Rng

JSON = "application/json"
NDJSON = "application/x-ndjson"
OCTETS = "application/octet-stream"
EVENT_STREAM = "text/event-stream"
REQUEST_ID_CHARACTERS_MAX = 200
_encoder = msgspec.json.Encoder()
_ALWAYS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Response(msgspec.Struct, frozen=True):
    """A response: a shape, or a stream of bytes.

    `then` runs after the commit, and its result replaces the response: waiting must hold no transaction.
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
        return self.body if isinstance(self.body, bytes) else _encoder.encode(self.body)


def sent(response: Response, headers: Mapping[str, str]) -> litestar.Response[Any]:
    """Turn a response into the one that the framework sends, with `headers` beside its own."""
    every = {**_ALWAYS, **headers, **response.headers}
    if response.stream is not None:
        return Stream(response.stream, status_code=response.status, headers=every, media_type=response.media_type)
    return litestar.Response(
        response.encoded(), status_code=response.status, headers=every, media_type=response.media_type
    )


def request_id_of(headers: Mapping[str, str], rng: Rng) -> str:
    """Return the caller's own id for the request, which the response repeats, or a new one."""
    given = headers.get("x-request-id")
    if given and given.isprintable() and len(given) <= REQUEST_ID_CHARACTERS_MAX:
        return given
    return str(rng.uuid())
