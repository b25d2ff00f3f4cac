"""HTTP/1.1 as uvicorn reads it, bounded in bytes and in time.

llhttp, which reads it, bounds neither a head nor the bytes around the chunks of a body; uvicorn waits for both for ever. Here a
head has `HEAD_BYTES_MAX` and `HEAD_SECONDS_MAX`; chunk extensions and trailers have as many bytes. While the application reads a
body, `BODY_BYTES_MIN` of it come in each `BODY_SECONDS`, and it is over soon after the answer. A peer that reads less than
`WRITE_BYTES_MIN` of a long answer in `WRITE_SECONDS` is cut off. A request that is refused here gets a problem document, as
everywhere, if no answer has begun.
See docs/decisions/0039-limits-before-authentication.md.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from http import HTTPStatus
from math import inf
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from duly.api.server.connections import Connections, Peer
from duly.clock import Rng
from duly.wire import problems

HEAD_BYTES_MAX = 16_384
HEAD_SECONDS_MAX = 10.0
BODY_SECONDS, BODY_BYTES_MIN = 10.0, 2_400
KEEP_ALIVE_SECONDS = 5
WRITE_SECONDS, WRITE_BYTES_MIN = 10.0, 16_384
# A chunk may be as small as its client likes: its length and its line ends are not held against it.
_CHUNK_BYTES, _BYTES_FOR_BYTE = 16, 2
# A refused client's further bytes are read and dropped for a while: closed at once, it would not see the answer.
_LINGER_SECONDS, _LINGER_BYTES = 1.0, 262_144


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, bounds: Connections, peer: Peer, rng: Rng, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self.peer = peer
        self.connecting: asyncio.Task[Any] | None = None  # until the handshake of TLS is over
        self._bounds = bounds
        self._rng = rng
        self._in_body = False
        self._is_refused = False
        self._answered: RequestResponseCycle | None = None
        self._bytes = 0  # of the head, or around the chunks of a body beyond what they need
        self._body_bytes = 0
        self._until = inf  # By then the peer must have sent the head, or more of the body.
        self._write_until = inf  # By then it must have read some of the answer.
        self._unread = 0

    # -------------------------------------------------------------------------------------------------------- arrivals

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head."""
        super().connection_made(transport)
        self.connecting = None
        self._until = self._bounds.now + HEAD_SECONDS_MAX

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave."""
        self._bounds.remove(self)
        if self._answered is not None:  # Of requests in a row, uvicorn knows the last.
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read what has come, no more of a head than its limit."""
        if self._is_refused:
            self._drop(data)
        elif not self._in_body and len(data) <= HEAD_BYTES_MAX - self._bytes:
            self._read(data)
        else:
            self._read_in_pieces(data)

    def _read_in_pieces(self, data: bytes) -> None:
        start = 0
        while start < len(data) and not self._is_refused and not self.transport.is_closing():
            size = HEAD_BYTES_MAX if self._in_body else HEAD_BYTES_MAX - self._bytes
            if not size:
                self.refuse("headers_too_large", f"The head of the request has more than {HEAD_BYTES_MAX} bytes.")
                return
            self._read(data[start : start + size])
            start += size

    def _read(self, piece: bytes) -> None:
        if self._until == inf:
            self._until = self._bounds.now + HEAD_SECONDS_MAX
        self._bytes += len(piece)
        super().data_received(piece)
        if self._in_body and self._bytes > HEAD_BYTES_MAX:
            self.refuse("headers_too_large", f"The trailers or chunk extensions have more than {HEAD_BYTES_MAX} bytes.")

    def on_headers_complete(self) -> None:
        """Go on to the body."""
        self._in_body, self._bytes, self._body_bytes = True, 0, 0
        self._until = self._bounds.now + BODY_SECONDS
        super().on_headers_complete()
        self.headers = []  # Trailers are no headers, so they come too late.

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        size = len(body)
        self._body_bytes += size
        self._bytes = max(0, self._bytes - size * (1 + _BYTES_FOR_BYTE))
        super().on_body(body)

    def on_chunk_complete(self) -> None:
        """Allow for what a chunk needs."""
        self._bytes = max(0, self._bytes - _CHUNK_BYTES)

    def on_message_complete(self) -> None:
        """Await nothing until the next head begins: from here on the request is whole, and is not closed for another."""
        self._in_body, self._bytes, self._until = False, 0, inf
        self.peer.waiting.pop(self, None)
        super().on_message_complete()

    # ----------------------------------------------------------------------------------------------------------- waits

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Wait for the next request, unless one is there already."""
        is_next_there = bool(self.pipeline)
        super().on_response_complete()
        if not is_next_there and not self.transport.is_closing():
            self.peer.waiting[self] = None

    def pause_writing(self) -> None:
        """Set a deadline for the peer to read."""
        super().pause_writing()
        self._await_reading(self._bounds.now)

    def resume_writing(self) -> None:
        """Clear that deadline."""
        super().resume_writing()
        self._write_until = inf

    def check(self, now: float) -> None:
        """Close if the peer has taken too long."""
        if self.connecting is not None:
            return  # The handshake has a limit of its own.
        if self._write_until == inf and self.transport.is_closing():
            self._await_reading(now)  # What was written before is still on its way.
        if now >= self._write_until:
            if self._unread - self.transport.get_write_buffer_size() < WRITE_BYTES_MIN:
                self._reset()
            else:
                self._await_reading(now)
        elif now >= self._until:
            self._time_out(now)

    def _reset(self) -> None:
        """Close without what is unread: otherwise the system would keep it for a peer that does not read."""
        with suppress(OSError):
            self.transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        self.transport.abort()

    def _await_reading(self, now: float) -> None:
        self._write_until, self._unread = now + WRITE_SECONDS, self.transport.get_write_buffer_size()

    def _time_out(self, now: float) -> None:
        if self._is_refused:
            self.transport.abort()
        elif not self._in_body:
            self._refuse_late_head()
        elif self.cycle.response_complete:
            self.transport.close()
        elif self.flow.read_paused or self.cycle.waiting_for_100_continue or self._body_bytes >= BODY_BYTES_MIN:
            self._until, self._body_bytes = now + BODY_SECONDS, 0
        else:
            self.refuse(
                "request_timeout", f"The body arrived with less than {BODY_BYTES_MIN} bytes in {BODY_SECONDS:g} s."
            )

    def give_way(self) -> None:
        """Close, to make room for another."""
        if self.connecting is not None:
            self.connecting.cancel()
        else:
            if self._bytes or self._in_body:
                self.refuse("too_many_connections", "Too many connections are open, and this one was idle longest.")
            else:
                self.transport.close()
            self._reset() if self.transport.get_write_buffer_size() else self.transport.close()
        self._bounds.remove(self)

    def _refuse_late_head(self) -> None:
        """Answer a head that has begun; a connection on which none has is closed without a word."""
        if self._bytes:
            self.refuse("request_timeout", f"The head of the request did not arrive within {HEAD_SECONDS_MAX:g} s.")
        else:
            self.transport.close()

    # -------------------------------------------------------------------------------------------------------- refusals

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP request."""
        self.refuse("malformed_request", "The request is not valid HTTP/1.1 (RFC 9112).")

    def refuse(self, code: str, detail: str) -> None:
        """Answer with a problem if no answer has begun, read no further, and close."""
        self._is_refused = True
        self._unset_keepalive_if_required()
        answered, self._until = self._answered, inf
        if answered is not None and not answered.response_complete:
            if not self._in_body or answered is not self.cycle:
                self.pipeline.clear()
                answered.keep_alive = False  # An earlier request is being answered: its answer is the last.
                return
            answered.disconnected = True
            answered.message_event.set()
            if answered.response_started:
                self.transport.close()
                return
        self.peer.waiting[self] = None
        self.transport.write(refusal(code, detail, self._rng))
        self._until = self._bounds.now + _LINGER_SECONDS
        if self.transport.can_write_eof():
            self._bytes = 0
            self.transport.write_eof()
        else:
            self.transport.close()

    def _drop(self, data: bytes) -> None:
        self._bytes += len(data)
        if self._bytes > _LINGER_BYTES:
            self.transport.abort()


def refusal(code: str, detail: str, rng: Rng) -> bytes:
    """Write a whole answer that refuses a request of which nothing is known."""
    request_id = str(rng.uuid())
    problem = problems.problem(code, detail, instance="", request_id=request_id)
    body = problems.encode(problem)
    head = [
        f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}",
        f"content-type: {problems.MEDIA_TYPE}",
        f"content-length: {len(body)}",
        f"x-request-id: {request_id}",
        "cache-control: no-store",
        "x-content-type-options: nosniff",
        "connection: close",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body
