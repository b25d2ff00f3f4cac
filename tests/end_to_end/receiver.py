"""A receiver of webhooks on a thread of its own: it notes when each request came and how many it had at once."""

import asyncio
import threading
import time
from collections import Counter
from contextlib import suppress

HEAD_END = b"\r\n\r\n"


class Receiver:
    """Answers what it is told to, after as long as it is told to."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.status = 200
        self.seconds = 0.0
        self.most_at_once = 0
        self.arrivals: list[tuple[float, int]] = []  # when, and with what it was answered
        self.attempts: Counter[str] = Counter()  # by the ids of runs
        self.heads: list[dict[str, str]] = []  # of requests, with names in small letters
        self._at_once = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "Receiver":
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        self.origin = f"http://{self.host}:{self.port}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def go_down(self) -> None:
        """Take no connection any more, and break off those that stand."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)

    def come_back(self) -> None:
        """Listen again, where it did before."""
        self._server = asyncio.run_coroutine_threadsafe(self._serve(self.port), self._loop).result(10)

    def most_in(self, seconds: float, since: float = 0.0) -> int:
        """Count the requests in the busiest stretch of so many seconds."""
        moments = sorted(at for at, _ in self.arrivals if at >= since)
        most, first = 0, 0
        for last, moment in enumerate(moments):
            while moment - moments[first] >= seconds:
                first += 1
            most = max(most, last - first + 1)
        return most

    async def _serve(self, port: int = 0) -> asyncio.Server:
        return await asyncio.start_server(self._answer, self.host, port)

    async def _close(self) -> None:
        self._server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Who is broken off does not read on: the connection ends with its task.
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(HEAD_END)).decode().lower()
                fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                await reader.readexactly(int(fields.get("content-length", 0)))
                self.heads.append(fields)
                status = await self._work(fields["x-run-id"])
                writer.write(f"HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n".encode())
                await writer.drain()
        writer.close()

    async def _work(self, run_id: str) -> int:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        status = self.status
        self.arrivals.append((time.monotonic(), status))
        self.attempts[run_id] += 1
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self._at_once -= 1
        return status
