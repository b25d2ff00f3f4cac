"""Servers on loopback that answer as no server should, and callers that may reach them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from duly.clock import SystemClock
from duly.log import Log
from duly.outbound.calling import Caller
from duly.outbound.egress import Egress, read_allowance
from duly.outbound.guard import Guard
from duly.outbound.resolver import Resolver, SystemResolver, Unresolved
from duly.outbound.transport import PinnedTransport, Request

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
Behaviour = Callable[[Reader, Writer], Awaitable[None]]
TENANT = 1
POST = Request("POST", {"Content-Type": "application/json"}, b'{"a":1}')


class Asked:
    """The requests that a server was sent, and over how many connections."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.connections = 0


async def read_request(reader: Reader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    return head + await reader.readexactly(length)


@asynccontextmanager
async def serving(
    behave: Behaviour, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve connections by `behave`, and give the port; whatever still runs at the end is cancelled."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: Reader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await behave(reader, writer)
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(accept, host, 0, ssl=tls, limit=1 << 20)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def answering(
    *answers: bytes, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[int, Asked]]:
    """Serve these answers in turn, the last again and again, over kept connections."""
    asked = Asked()

    async def behave(reader: Reader, writer: Writer) -> None:
        asked.connections += 1
        while True:
            request = await read_request(reader)
            writer.write(answers[min(len(asked.requests), len(answers) - 1)])
            asked.requests.append(request)
            await writer.drain()

    async with serving(behave, host=host, tls=tls) as port:
        yield port, asked


def answer(status: int = 200, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", *headers, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


class Names:
    """A resolver of a test: each name has a list of answers, given in turn, the last again and again."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self._answers = {name.replace("_", "."): list(turns) for name, turns in answers.items()}
        self.asked: list[str] = []

    async def addresses_of(self, host: str, tenant: int) -> Sequence[str]:
        self.asked.append(host)
        turns = self._answers.get(host)
        if not turns:
            raise Unresolved("no such name")
        return turns.pop(0) if len(turns) > 1 else turns[0]


@asynccontextmanager
async def a_caller(
    *allow: str, names: Resolver | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Caller]:
    """A caller that may reach what `allow` names."""
    egress = Egress(allowances=tuple(map(read_allowance, allow)))
    guard = Guard(egress, names or SystemResolver(SystemClock()), Log("test"))
    caller = Caller(guard, PinnedTransport(tls), Log("test"))
    try:
        yield caller
    finally:
        await caller.close()
