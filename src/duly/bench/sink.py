"""A receiver as lean as one can be, in a process of its own: `python -m duly.bench.sink`.

It tells its port on standard output and ends when standard input does. A request to `/slow` gets a byte of its answer each
second; any other gets a small JSON answer at once.
"""

from __future__ import annotations

import asyncio
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from duly.bench.roles import environment
from duly.worker import loop

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_OK = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"ok":true}'
_SLOW = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
_DRIP_SECONDS = 1.0


class _Sink(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # The fast loop's is none by its type.

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._received, 0, end + 2)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self._received) < size:
                return
            self._answer(self._received.startswith(b"POST /slow"))
            self._received = self._received[size:]

    def _answer(self, is_slow: bool) -> None:
        assert self._transport is not None
        self._transport.write(_SLOW if is_slow else _OK)
        if is_slow:
            self._drip()

    def _drip(self) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.write(b"x")
            asyncio.get_running_loop().call_later(_DRIP_SECONDS, self._drip)


@asynccontextmanager
async def running_sink() -> AsyncIterator[int]:
    """Run a sink, and give its port."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "duly.bench.sink", stdin=PIPE, stdout=PIPE, env=environment()
    )
    assert process.stdin
    assert process.stdout
    try:
        yield int(await process.stdout.readline())
    finally:
        process.stdin.close()
        await process.wait()


async def _serve() -> None:
    this_loop = asyncio.get_running_loop()
    server = await this_loop.create_server(_Sink, "127.0.0.1", 0, backlog=1_024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await this_loop.run_in_executor(None, sys.stdin.buffer.read)


if __name__ == "__main__":
    loop.run(_serve())
