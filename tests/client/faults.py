"""Faults between a client and a server: answers that are lost, and answers of somebody in between."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import httpx2


class Proxy:
    """Passes bytes on. The next `lose` answers are lost: the server has given them, and the caller's connection is cut."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname, parts.port)
        self._tasks: set[asyncio.Task[None]] = set()
        self.lose = 0
        self.lost = 0
        self.connections = 0

    async def __aenter__(self) -> "Proxy":
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *failure: object) -> None:
        self._listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        above_reader, above_writer = await asyncio.open_connection(*self._server)
        sending = asyncio.create_task(self._pass_on(reader, above_writer))
        try:
            with suppress(asyncio.CancelledError):
                await self._answer(above_reader, writer)
        finally:
            sending.cancel()
            self._tasks.discard(task)
            for one in (writer, above_writer):
                one.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while answer := await reader.read(65_536):
                if self.lose:
                    self.lose -= 1
                    self.lost += 1
                    writer.transport.abort()
                    return
                writer.write(answer)
                await writer.drain()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while some := await reader.read(65_536):
                writer.write(some)
                await writer.drain()


class Between(httpx2.AsyncBaseTransport):
    """Gives these answers first, and then lets requests through; it remembers what was sent."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, answers: Sequence[httpx2.Response | Exception]) -> None:
        self._inner = inner
        self._answers = list(answers)
        self.sent: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(request)
        if not self._answers:
            return await self._inner.handle_async_request(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer
