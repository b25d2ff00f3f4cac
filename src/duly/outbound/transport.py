"""HTTP to a pinned address, with connections kept for a moment, each for one address and one origin.

We connect to the literal address, under the original name: so nothing is looked up, and TLS uses the name. The
connection is checked before anything is sent: the peer of the socket must be the pinned address.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from functools import cache, lru_cache

import msgspec

from duly.domain.targets.webhook_url import WebhookUrl
from duly.outbound.addresses import Address, read_address
from duly.outbound.connection import BODY_BYTES_MAX, HEADERS_BYTES_MAX, NO_ANSWER, Answer, Connection
from duly.outbound.errors import NoAnswer
from duly.outbound.guard import Pin

__all__ = ["BODY_BYTES_MAX", "HEADERS_BYTES_MAX", "Answer", "PinnedTransport", "Request"]

# Shorter than any server in use keeps a silent connection: otherwise it would close just when we send on it.
_KEPT_SECONDS = 1.5
# Seconds that one of several addresses may take to connect before the next is tried.
_UNTIL_THE_NEXT_SECONDS = 5.0
# Methods that may be sent twice without harm, should a kept connection turn out to have ended.
_REPEATABLE = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PUT"})
_WITHOUT_LENGTH = frozenset({"DELETE", "GET", "HEAD", "OPTIONS"})  # when there is no body

_Endpoint = tuple[str, Address]


class Request(msgspec.Struct, frozen=True):
    """A request. The transport adds `Host` and the framing."""

    method: str
    headers: Mapping[str, str]
    body: bytes = b""


class PinnedTransport:
    """Sends requests to pinned addresses, without a deadline of its own. Lives on the loop on which it first sends."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._kept: dict[_Endpoint, list[Connection]] = {}
        self._in_use: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None

    async def send(self, pin: Pin, request: Request) -> Answer:
        """Send it to the first of the addresses that accepts the connection. Raises NoAnswer, BadAnswer."""
        head = write_head(pin.url, request)
        *others, last = pin.addresses
        for address in others:
            try:
                return await self._send(pin.url, address, request, head, _UNTIL_THE_NEXT_SECONDS)
            except _NotConnected:
                continue
        try:
            return await self._send(pin.url, last, request, head, None)
        except _NotConnected as error:
            raise NoAnswer(NO_ANSWER, error.detail) from None

    async def close(self) -> None:
        """Close all connections."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in [*self._in_use, *(one for kept in self._kept.values() for one in kept)]:
            connection.hang_up()
        self._kept.clear()
        await asyncio.sleep(0)  # A socket is closed by the loop's next turn.

    async def _send(
        self, url: WebhookUrl, address: Address, request: Request, head: bytes, seconds: float | None
    ) -> Answer:
        endpoint = (url.origin, address)
        connection = self._take(endpoint)
        if connection is not None:
            try:
                return await self._exchange(endpoint, connection, request, head)
            except NoAnswer:
                if connection.has_answered or request.method not in _REPEATABLE:
                    raise
        return await self._exchange(endpoint, await self._connect(url, address, seconds), request, head)

    async def _exchange(self, endpoint: _Endpoint, connection: Connection, request: Request, head: bytes) -> Answer:
        self._in_use.add(connection)
        try:
            answer = await connection.exchange(head, request.body, has_body=request.method != "HEAD")
        finally:
            self._in_use.discard(connection)
        if connection.is_reusable:
            self._keep(endpoint, connection)
        else:
            connection.hang_up()
        return answer

    async def _connect(self, url: WebhookUrl, address: Address, seconds: float | None) -> Connection:
        is_tls = url.scheme == "https"
        try:
            async with asyncio.timeout(seconds):
                _, connection = await asyncio.get_running_loop().create_connection(
                    Connection,
                    str(address),
                    url.port,
                    ssl=(self._tls or _usual_tls()) if is_tls else None,
                    server_hostname=url.host if is_tls else None,
                )
        except OSError as error:  # A deadline of ours and a certificate that is refused are such, too.
            raise _NotConnected(NO_ANSWER, f"{type(error).__name__}: {error}") from None
        _check_peer(connection, address)
        return connection

    # ------------------------------------------------------------------------------------------------ kept connections

    def _take(self, endpoint: _Endpoint) -> Connection | None:
        """Take the most recently used connection: the others may rest, and end."""
        kept = self._kept.get(endpoint)
        if not kept:
            return None
        latest = asyncio.get_running_loop().time() - _KEPT_SECONDS
        while kept:
            connection = kept.pop()
            if connection.is_reusable and connection.idle_since > latest:
                return connection
            connection.hang_up()
        return None

    def _keep(self, endpoint: _Endpoint, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._kept.setdefault(endpoint, []).append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(_KEPT_SECONDS, self._hang_up_the_idle)

    def _hang_up_the_idle(self) -> None:
        loop = asyncio.get_running_loop()
        latest = loop.time() - _KEPT_SECONDS
        for endpoint, kept in list(self._kept.items()):
            for connection in kept:
                if connection.idle_since <= latest:
                    connection.hang_up()
            self._kept[endpoint] = [connection for connection in kept if connection.is_reusable]
            if not self._kept[endpoint]:
                del self._kept[endpoint]
        self._sweep = loop.call_later(_KEPT_SECONDS, self._hang_up_the_idle) if self._kept else None


class _NotConnected(NoAnswer):
    """Nothing was sent: another address may be tried."""


def write_head(url: WebhookUrl, request: Request) -> bytes:
    """Write the head of a request. Raises ValueError when a header would be more than one line."""
    lines = [f"{request.method} {url.target} HTTP/1.1", f"Host: {_authority(url)}", "Accept: */*"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    if request.body or request.method not in _WITHOUT_LENGTH:
        lines.append(f"Content-Length: {len(request.body)}")
    text = "\r\n".join(lines)
    if text.count("\r") != len(lines) - 1 or text.count("\n") != len(lines) - 1 or "\0" in text:
        raise ValueError(f"a header of a request to {url.origin} holds a line break")  # Its value may be secret.
    return (text + "\r\n\r\n").encode()


@lru_cache(maxsize=1_024)
def _authority(url: WebhookUrl) -> str:
    return url.authority


def _check_peer(connection: Connection, address: Address) -> None:
    peer = connection.peer
    if peer is None or (peer != str(address) and read_address(peer) != address):
        connection.hang_up()
        raise NoAnswer(NO_ANSWER, f"the connection goes to {peer}, not to {address}")


@cache
def _usual_tls() -> ssl.SSLContext:
    """Return the system's trusted certificates; reading all of them takes a while."""
    return ssl.create_default_context()
