"""One HTTP/1.1 connection: one request at a time, and of its response no more than is kept.

httptools parses strictly: a response with two lengths, a folded header or a broken chunk is refused. This module
decides the rest: how much is read, which responses are interim, when a response ends with its connection, and whether
the connection can be reused. That it cannot is never an error: then the next request has a connection of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import cast

import msgspec
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from duly.outbound.errors import BadAnswer, NoAnswer, OutboundError

HEADERS_BYTES_MAX = 32_768
BODY_BYTES_MAX = 65_536
HEADERS_MAX = 128
HEADER_BYTES_MAX = 8_190
# With the overhead of a body: the sizes of its chunks, their extensions, and trailers.
_RECEIVED_BYTES_MAX = HEADERS_BYTES_MAX + 8 * BODY_BYTES_MAX
_VERSIONS = ("1.0", "1.1")
_SWITCHING = 101
NO_ANSWER = "no response: the connection failed, or closed before the response was complete"
_NO_HTTP = "the response is not HTTP, or has too many headers"


class Headers(Mapping[str, str]):
    """The headers of a response, found in any case; of several with one name, the first."""

    __slots__ = ("_values",)

    def __init__(self, values: dict[str, str]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override] # Only of text.
        """Return a header's value, if there is one."""
        return self._values.get(name.lower(), default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Answer(msgspec.Struct, frozen=True):
    """A response. `headers` are found in any case; of a body that is not whole, `body` is the beginning."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool


class Connection(asyncio.Protocol):
    """An open connection; it knows its peer, and whether it can be reused."""

    def __init__(self) -> None:
        self.idle_since = 0.0  # set by the pool
        self.has_answered = False  # something came since the last request
        self._transport: asyncio.Transport | None = None
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self._response: asyncio.Future[Answer] | None = None
        self._early = b""  # came on a fresh connection before any request
        self._is_fresh = True
        self._is_lasting = False
        self._start_over(has_body=True)

    def _start_over(self, *, has_body: bool) -> None:
        self._has_body = has_body
        self._has_head = self._has_length = False
        self._headers: dict[str, str] = {}
        self._headers_number = self._headers_bytes = self._received = 0
        self._body = bytearray()

    # ------------------------------------------------------------------------------------------------- for the caller

    @property
    def peer(self) -> str | None:
        """The address at the other end, from the socket."""
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        return None if peer is None else str(peer[0])

    @property
    def is_reusable(self) -> bool:
        """Return whether another request may be sent on it."""
        return self._is_lasting and self._transport is not None and not self._transport.is_closing()

    async def exchange(self, head: bytes, body: bytes, *, has_body: bool) -> Answer:
        """Send a request and read its response; `has_body`: the response may have one. Raises NoAnswer, BadAnswer."""
        transport = self._transport
        if transport is None or (transport.is_closing() and not self._early):
            raise NoAnswer(NO_ANSWER, "it closed the connection before the request was sent")
        response: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._response = response
        self._start_over(has_body=has_body)
        self.has_answered = self._is_lasting = False
        transport.write(head + body if len(body) <= BODY_BYTES_MAX else head)
        if len(body) > BODY_BYTES_MAX:
            transport.write(body)
        self._take_early()
        try:
            return await response
        except BaseException:
            self.hang_up()
            raise

    def _take_early(self) -> None:
        """Read what a server sent before the request: one that refuses us need not wait for it."""
        self._is_fresh = False
        if self._early:
            data, self._early = self._early, b""
            self.data_received(data)

    def hang_up(self) -> None:
        """Close it at once, whatever is under way."""
        self._is_lasting = False
        if self._transport is not None:
            self._transport.abort()

    # --------------------------------------------------------------------------------------------------- for the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)  # The fast loop's is none by its type.

    def data_received(self, data: bytes) -> None:
        """Read what has come; unexpected data ends the connection."""
        if self._response is None:
            self._unasked(data)
            return
        assert self._parser is not None
        self.has_answered = True
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(BadAnswer(_NO_HTTP, f"{type(error).__name__}: {error}"))
            return
        if self._received > (_RECEIVED_BYTES_MAX if self._has_head else HEADERS_BYTES_MAX):
            self._fail(BadAnswer(_NO_HTTP, f"{self._received} bytes, and no end"))

    def _unasked(self, data: bytes) -> None:
        if self._is_fresh and len(self._early) + len(data) <= HEADERS_BYTES_MAX:
            self._early += data
        else:
            self.hang_up()

    def connection_lost(self, error: Exception | None) -> None:
        """End a response without a length; any other is broken off."""
        if self._has_head and not self._has_length and error is None:
            self._end(is_whole=True)
        else:
            self._fail(
                NoAnswer(NO_ANSWER, f"it closed the connection: {error!r}" if error else "it closed the connection")
            )
        self._parser = None  # It holds us, as we hold it.

    # -------------------------------------------------------------------------------------------------- for the parser

    def on_message_begin(self) -> None:
        """Refuse anything after a response: it would be taken for the next one."""
        if self._response is None:
            self.hang_up()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer, which counts like one and is not kept."""
        if self._response is None:
            return
        self._headers_number += 1
        self._headers_bytes += len(name) + len(value) + 4
        if self._headers_number > HEADERS_MAX or len(value) > HEADER_BYTES_MAX:
            self._fail(BadAnswer(_NO_HTTP, f"header {self._headers_number} has {len(value)} bytes"))
        elif not self._has_head:
            self._headers.setdefault(name.decode("latin-1").lower(), value.decode("utf-8", "surrogateescape"))

    def on_headers_complete(self) -> None:
        """Judge a response by its head; one without a body is whole."""
        if self._response is None:
            return
        assert self._parser is not None
        status = self._parser.get_status_code()
        refusal = self._refusal(status)
        if refusal is not None:
            self._fail(refusal)
        elif status >= 200:
            self._has_head = True
            self._has_length = "content-length" in self._headers or "transfer-encoding" in self._headers
            if not self._has_body:
                self._end(is_whole=True)  # It may name a length that no body has: so nothing more is asked here.

    def _refusal(self, status: int) -> BadAnswer | None:
        assert self._parser is not None
        version, coding = self._parser.get_http_version(), self._headers.get("transfer-encoding", "chunked")
        if self._headers_bytes > HEADERS_BYTES_MAX:
            size, most = self._headers_bytes, HEADERS_BYTES_MAX
            return BadAnswer(f"its response has {size:,} bytes of headers; the limit is {most:,}")
        if status < 100 or status == _SWITCHING:
            return BadAnswer(f"it answered {status}, which is not a valid response to a webhook")
        if version not in _VERSIONS or coding.lower() != "chunked":
            return BadAnswer(_NO_HTTP, f"version {version}, transfer-encoding {coding}")
        return None

    def on_body(self, data: bytes) -> None:
        """Keep what fits; close on the rest."""
        if self._response is None:
            return
        self._body += data
        if len(self._body) > BODY_BYTES_MAX:
            self._end(is_whole=False)
            self.hang_up()

    def on_message_complete(self) -> None:
        """Drop an interim response; any other is the end."""
        if self._response is None:
            return
        if not self._has_head:
            self._start_over(has_body=self._has_body)
            return
        assert self._parser is not None
        assert self._transport is not None
        # A request that was answered before it was sent whole leaves a rest that is never read.
        is_sent = self._transport.get_write_buffer_size() == 0
        self._end(is_whole=True)
        self._is_lasting = is_sent and self._has_body and self._parser.should_keep_alive()

    def _end(self, *, is_whole: bool) -> None:
        response, self._response = self._response, None
        if response is None or response.done():
            return
        assert self._parser is not None
        body = bytes(self._body[:BODY_BYTES_MAX])
        response.set_result(Answer(self._parser.get_status_code(), Headers(self._headers), body, is_whole))

    def _fail(self, error: OutboundError) -> None:
        response, self._response = self._response, None
        if response is not None and not response.done():
            response.set_exception(error)
        self.hang_up()
