"""The HTTP process of a `duly up`: separate, so that no load on it can delay the scheduler.

It inherits the listeners, which stay open here: while the process restarts, new connections wait. On its standard input
it receives the database's address, and then, twice a second, the state of the scheduler. It reports on its standard
output that it answers.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from duly.api.metrics.definitions import Family
from duly.cli.up.children import Child, Keeper
from duly.clock import Clock
from duly.log import Log
from duly.settings import Settings

READY = b"ready\n"
REPORT_SECONDS = 0.5
_STOP_SECONDS = 2.5
_UNREAD_BYTES_MAX = 65_536


class Start(msgspec.Struct, frozen=True):
    """The database's address, and how it is served."""

    settings: Settings
    url: str
    data: Path | None
    workers_expected: int


class PartReport(msgspec.Struct):
    """The state of the scheduler and the maintenance beside it, and the metrics of all but the HTTP process. Moments are
    those of the monotonic clock, which processes share.
    """

    reported_at: float
    started: bool
    shards: int
    lag_seconds: float
    stepped_at: float | None
    reaped_at: float | None
    rounds: Mapping[str, float]
    families: list[Family]


class HttpPart:
    """Keeps the process running, and sends it what it has to know.

    The listeners are `http`, and if there are such `metrics`, and `local` for the commands of this account.
    """

    def __init__(
        self,
        listeners: Mapping[str, socket.socket | None],
        *,
        clock: Clock,
        log: Log,
        on_death: Callable[[int], None],
    ) -> None:
        self._child = _HttpChild({name: one for name, one in listeners.items() if one is not None})
        self._keeper = Keeper(self._child, "http", clock=clock, log=log, on_death=on_death)
        self._clock = clock

    @property
    def is_ready(self) -> bool:
        """Return whether it answers requests."""
        return self._child.is_ready

    async def start(self) -> None:
        """Start it; it waits for `serve`."""
        await self._keeper.start()

    def serve(self, start: Start) -> None:
        """Let it open the database and answer."""
        self._child.begin(msgspec.json.encode(start, enc_hook=str) + b"\n")

    async def keep_delivering(self, look: Callable[[], PartReport]) -> None:
        """Send it the state of the scheduler, for ever."""
        while True:
            self._child.send(msgspec.json.encode(look()) + b"\n")
            await self._clock.sleep(REPORT_SECONDS)

    async def stop(self) -> None:
        """End it."""
        await self._keeper.stop(_STOP_SECONDS)


class _HttpChild(Child):
    def __init__(self, listeners: Mapping[str, socket.socket]) -> None:
        named = [f"{name}={listener.fileno()}" for name, listener in listeners.items()]
        descriptors = [listener.fileno() for listener in listeners.values()]
        super().__init__([sys.executable, "-m", "duly.cli.up.http_process", *named], stdout=PIPE, pass_fds=descriptors)
        self.is_ready = False
        self._start_line = b""

    async def start(self) -> None:
        """Start it, and let it serve if an earlier one did."""
        self.is_ready = False
        await super().start()
        self._listening = asyncio.create_task(self._listen())
        self.send(self._start_line)

    def begin(self, line: bytes) -> None:
        """Send it, and each of its successors, the first line: what to serve."""
        self._start_line = line
        self.send(line)

    def send(self, line: bytes) -> None:
        """Write a line to it, unless it has left many unread."""
        assert self._process is not None
        writer = self._process.stdin
        assert writer is not None
        if not writer.is_closing() and writer.transport.get_write_buffer_size() < _UNREAD_BYTES_MAX:
            with suppress(OSError):  # it has died, and is restarted
                writer.write(line)

    async def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.is_ready = self.is_ready or line == READY
