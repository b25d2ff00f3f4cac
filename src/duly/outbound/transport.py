"""HTTP to a pinned address. aiohttp stands behind a small seam, so that another client may take its place.

The literal address is what is asked for, under the original name: so nothing is looked up, a connection is kept for its address
and name alone, and TLS is spoken with the name. Of an answer no more is read than is kept, and nothing is unpacked.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, NoReturn, Protocol

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from duly.domain.webhook_url import WebhookUrl
from duly.outbound.addresses import Address, read_address
from duly.outbound.errors import BadAnswer, NoAnswer
from duly.outbound.guard import Pin

HEADERS_BYTES_MAX = 32_768
BODY_BYTES_MAX = 65_536
_HEADERS_MAX = 128
_HEADER_BYTES_MAX = 8_190
# Shorter than any server in use keeps a silent connection: else it would hang up just when we send on it.
_KEPT_SECONDS = 1.5
# How long one of several addresses may take to answer the call before the next is tried.
_UNTIL_THE_NEXT = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
_UNTIL_THE_DEADLINE = aiohttp.ClientTimeout(total=None)
_NO_ANSWER = "no answer: the connection could not be made, or ended before a whole answer had come"


class Request(msgspec.Struct, frozen=True):
    """What is sent. `Host` and the framing are the transport's."""

    method: str
    headers: Mapping[str, str]
    body: bytes = b""


class Answer(msgspec.Struct, frozen=True):
    """What came. `headers` are found in any case; of a body that is not whole, `body` is the beginning."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool


class Transport(Protocol):
    """Sends requests to pinned addresses."""

    async def send(self, pin: Pin, request: Request) -> Answer:
        """Send it, and read the answer; without a deadline of its own. Raises NoAnswer, BadAnswer."""
        ...

    async def close(self) -> None:
        """Hang up everywhere."""
        ...


class AiohttpTransport:
    """Lives on the loop on which it first sends."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def send(self, pin: Pin, request: Request) -> Answer:
        """Send it to the first of the addresses that takes the connection. Raises NoAnswer, BadAnswer."""
        *others, last = pin.addresses
        for address in others:
            try:
                return await self._send(pin, address, request, _UNTIL_THE_NEXT)
            except _NotConnected:
                continue
        try:
            return await self._send(pin, last, request, _UNTIL_THE_DEADLINE)
        except _NotConnected as error:
            raise NoAnswer(_NO_ANSWER, error.detail) from None

    async def close(self) -> None:
        """Hang up everywhere."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _send(self, pin: Pin, address: Address, request: Request, timeout: aiohttp.ClientTimeout) -> Answer:
        session = self._session or self._open()
        url, host = _aim(pin.url, address)
        try:
            async with session.request(
                request.method,
                url,
                data=aiohttp.BytesPayload(request.body) if request.body else None,
                headers={**request.headers, "Host": host},
                server_hostname=pin.url.host,
                allow_redirects=False,
                timeout=timeout,
            ) as response:
                return await _read(response)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            _explain(error)

    def _open(self) -> aiohttp.ClientSession:
        tls = self._tls or _usual_tls()
        self._session = aiohttp.ClientSession(
            connector=_PinnedConnector(
                limit=0, keepalive_timeout=_KEPT_SECONDS, resolver=_NoResolver(), use_dns_cache=False, ssl=tls
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_UNTIL_THE_DEADLINE,
            skip_auto_headers=("Accept-Encoding", "Content-Type", "User-Agent"),
            auto_decompress=False,
            trust_env=False,
            max_headers=_HEADERS_MAX,
            max_field_size=_HEADER_BYTES_MAX,
            max_line_size=_HEADER_BYTES_MAX,
        )
        return self._session


class _NotConnected(NoAnswer):
    """Nothing was sent: another address may be tried."""


class _PinnedConnector(aiohttp.TCPConnector):
    """Looks once more whom it has reached, before anything is sent: on a fresh connection and on a kept one."""

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
        connection = await super().connect(req, traces, timeout)
        transport = connection.transport
        peer = transport.get_extra_info("peername") if transport is not None else None
        if peer is None or not _is_same(peer[0], req.url.raw_host):
            connection.close()
            raise aiohttp.ClientConnectionError(f"the connection leads to {peer}, not to {req.url.raw_host}")
        return connection


class _NoResolver(AbstractResolver):
    """The transport is given addresses: a name that gets here has not been checked by anybody."""

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        raise OSError(f"{host} is a name, and names are looked up by the guard alone")

    async def close(self) -> None:
        return


@cache
def _usual_tls() -> ssl.SSLContext:
    """Trust whom the system trusts; reading all of them takes a while."""
    return ssl.create_default_context()


@lru_cache(maxsize=1_024)
def _aim(url: WebhookUrl, address: Address) -> tuple[URL, str]:
    """Give the URL that leads to the address, and the name to call it by."""
    place = f"[{address}]" if address.version == 6 else str(address)
    return URL(f"{url.scheme}://{place}:{url.port}{url.target}", encoded=True), url.authority


def _is_same(peer: str, asked: str) -> bool:
    return peer == asked or read_address(peer) == read_address(asked)


async def _read(response: aiohttp.ClientResponse) -> Answer:
    """Read as much of an answer as is kept; hang up on the rest."""
    try:
        size = sum(len(name) + len(value) + 4 for name, value in response.raw_headers)
        if size > HEADERS_BYTES_MAX:
            raise BadAnswer(f"its answer has {size:,} bytes of headers; up to {HEADERS_BYTES_MAX:,} are taken")
        if response.status < 200:
            raise BadAnswer(f"it answered {response.status}, which is no answer to a webhook")
        body = await _read_body(response)
    except BaseException:
        response.close()
        raise
    if is_whole := response.content.at_eof() and len(body) <= BODY_BYTES_MAX:
        response.release()
    else:
        response.close()
    return Answer(response.status, response.headers, body[:BODY_BYTES_MAX], is_whole)


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    content = response.content
    body = bytearray(await content.read(BODY_BYTES_MAX + 1))
    while len(body) <= BODY_BYTES_MAX and not content.at_eof():
        body += await content.read(BODY_BYTES_MAX + 1 - len(body))
    return bytes(body)


def _explain(error: Exception) -> NoReturn:
    detail = f"{type(error).__name__}: {error}"
    match error:
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            raise _NotConnected(_NO_ANSWER, detail) from None
        case aiohttp.ClientResponseError():
            raise BadAnswer("what it answered is no HTTP, or has more headers than are taken", detail) from None
    raise NoAnswer(_NO_ANSWER, detail) from None
