"""Requests over kept-alive connections, as lean as a client can be: what is measured is the server.

A request is bytes made beforehand, and of an answer only its status and its length are looked at.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from time import perf_counter

from duly.domain.errors import DulyError

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)


class UnexpectedResponse(DulyError):
    """The server did not answer as it should: there is no result."""


def request(method: str, path: str, key: str, body: bytes = b"", media_type: str = "application/json") -> bytes:
    """Write a request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: duly\r\nAuthorization: Bearer {key}\r\n"
    if body:
        head += f"Content-Type: {media_type}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


class Connection:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def exchange(self, request_bytes: bytes, status: int) -> bytes:
        """Send a request and return the body of its response. Raises UnexpectedResponse when it has another status."""
        self._writer.write(request_bytes)
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await self._reader.readexactly(int(length[1]) if length else 0)
        if not head.startswith(b"HTTP/1.1 %d " % status):
            raise UnexpectedResponse(f"{head[:60]!r}: {body[:300]!r}")
        return body

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


async def connected(port: int, number: int) -> list[Connection]:
    """Open connections."""
    return [
        Connection(*await asyncio.open_connection("127.0.0.1", port, limit=64 * 1024 * 1024)) for _ in range(number)
    ]


async def send_all(connections: Sequence[Connection], requests: Iterator[bytes], status: int) -> list[float]:
    """Send requests over all connections, each as fast as it is answered. Returns how long each took."""
    elapsed: list[float] = []

    async def send(connection: Connection) -> None:
        for request_bytes in requests:
            began = perf_counter()
            await connection.exchange(request_bytes, status)
            elapsed.append(perf_counter() - began)

    await asyncio.gather(*map(send, connections))
    return elapsed
