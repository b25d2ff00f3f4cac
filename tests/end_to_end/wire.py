"""A wire to PostgreSQL that can be cut: then nothing passes, and nobody is told. What was under way arrives when it is mended."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_BYTES_MAX = 65_536


class Wire:
    """Carries connections to one server, on a thread of its own."""

    def __init__(self, server: Path, folder: Path) -> None:
        self._server = server
        self._listening_at = folder / server.name
        self._loop = asyncio.new_event_loop()
        self._whole = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Let nothing pass, in neither direction; connections stay open, and new ones are not answered."""
        self._loop.call_soon_threadsafe(self._whole.clear)

    def mend(self) -> None:
        """Let everything pass again, late."""
        self._loop.call_soon_threadsafe(self._whole.set)

    def run(self, ready: threading.Event) -> None:
        """Carry until stopped."""
        asyncio.set_event_loop(self._loop)
        self._whole.set()
        listener = self._loop.run_until_complete(asyncio.start_unix_server(self._carry_both, self._listening_at))
        ready.set()
        self._loop.run_forever()
        listener.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(self._loop), return_exceptions=True))
        self._loop.close()

    def stop(self) -> None:
        """Hang up on everybody."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _carry_both(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            await self._whole.wait()
            theirs, ours = await asyncio.open_unix_connection(str(self._server))
            await asyncio.gather(self._carry(reader, ours), self._carry(theirs, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(_BYTES_MAX):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
            await self._whole.wait()
        finally:
            writer.close()


@contextmanager
def a_wire(url: str, folder: Path) -> Iterator[tuple[str, Wire]]:
    """Lay a wire to the server of `url`, a Unix socket. Gives the address to use instead, and the wire."""
    before, _, rest = url.partition("host=")
    host, _, after = rest.partition("&")
    folder.mkdir(mode=0o700)
    wire, ready = Wire(Path(host) / ".s.PGSQL.5432", folder), threading.Event()
    thread = threading.Thread(target=wire.run, args=(ready,))
    thread.start()
    try:
        assert ready.wait(30)
        yield f"{before}host={folder}&{after}", wire
    finally:
        wire.stop()
        thread.join()
