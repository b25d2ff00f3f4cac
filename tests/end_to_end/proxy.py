"""A proxy before PostgreSQL that loses answers: the statement is done and committed, and the client never hears of it.

It understands as much of the protocol as that takes: which statement a request executes, and where the answer to it ends.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

_HEADER = 5  # one byte of type, four of length, which counts itself
_READY = b"Z"


class Proxy:
    """Passes everything on, until it is told which statements' answers to lose, and how often."""

    def __init__(self, server: Path, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self._share = 0.0
        self._words: tuple[str, ...] = ()
        self._tasks: set[asyncio.Task[None]] = set()
        self.lost = 0

    def lose(self, share: float, *words: str) -> None:
        """Lose this share of the answers to statements in which one of these words occurs."""
        self._share, self._words = share, words

    def is_to_be_lost(self, statement: str) -> bool:
        """Throw the dice for one answer."""
        return any(word in statement for word in self._words) and self._chance.random() < self._share

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it, or its answer is lost."""
        try:
            ours = await asyncio.open_unix_connection(str(self._server))
        except OSError:
            writer.close()
            return
        statements = Statements(self.is_to_be_lost)
        directions = {
            asyncio.create_task(_carry_requests(reader, ours[1], statements)),
            asyncio.create_task(self._carry_answers(ours[0], writer, statements)),
        }
        self._tasks |= directions
        _, pending = await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*directions, return_exceptions=True)
        self._tasks -= directions
        writer.close()
        ours[1].close()

    async def _carry_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, statements: "Statements"
    ) -> None:
        """Pass answers on; one to be lost is awaited to its end, when the server has committed, and then nobody hears it."""
        while frame := await _frame(reader):
            if not statements.is_to_be_lost:
                writer.write(frame)
                await writer.drain()
            elif frame[:1] == _READY:
                self.lost += 1
                return

    async def close(self) -> None:
        """Hang up on everybody."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Statements:
    """What a connection has prepared, and whether the answer to what it executes is to be lost."""

    def __init__(self, throw: Callable[[str], bool]) -> None:
        self._throw = throw
        self._texts: dict[bytes, str] = {}
        self.is_to_be_lost = False

    def heed(self, frame: bytes) -> None:
        """Take one request: one that prepares a statement, or one that executes it."""
        match frame[:1]:
            case b"P":
                name, text, *_ = frame[_HEADER:].split(b"\0")
                self._texts[name] = text.decode()
            case b"B":
                _, name, *_ = frame[_HEADER:].split(b"\0", 2)
                self.is_to_be_lost = self._throw(self._texts.get(name, ""))


async def _carry_requests(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, statements: Statements) -> None:
    head = await reader.readexactly(4)
    writer.write(head + await reader.readexactly(int.from_bytes(head) - 4))  # The first message has no type.
    while frame := await _frame(reader):
        statements.heed(frame)
        writer.write(frame)
        await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    try:
        head = await reader.readexactly(_HEADER)
        return head + await reader.readexactly(int.from_bytes(head[1:]) - 4)
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""


@asynccontextmanager
async def a_proxy(url: str, folder: Path, seed: int = 1) -> AsyncIterator[tuple[str, Proxy]]:
    """Stand before the server of `url`, a Unix socket. Gives the address to use instead, and the proxy."""
    before, host, after = _parts(url)
    proxy = Proxy(Path(host) / ".s.PGSQL.5432", random.Random(seed))
    listener = await asyncio.start_unix_server(_quietly(proxy.serve), folder / ".s.PGSQL.5432")
    try:
        yield f"{before}host={folder}{after}", proxy
    finally:
        listener.close()
        await proxy.close()


def _parts(url: str) -> tuple[str, str, str]:
    before, _, rest = url.partition("host=")
    host, _, after = rest.partition("&")
    return before, host, f"&{after}"


def _quietly(serve: Callable) -> Callable:
    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await serve(reader, writer)

    return served
