"""`duly top`: the installation as it is now, on one screen that renews itself."""

from __future__ import annotations

import asyncio
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial

import click

from duly.cli.client import connected
from duly.cli.flags.settings import with_settings
from duly.cli.render.output import print_json
from duly.cli.render.top import Look, Shown, document, screen
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import Forbidden, ServerFailed, Unavailable
from duly.clock import SystemClock, host_now
from duly.domain.errors import DatabaseUnusable
from duly.settings import Settings, redacted
from duly.store.connection.database import Unavailable as DatabaseUnavailable
from duly.wire.queues import Queue, Worker
from duly.wire.system import System

_RECENT = timedelta(minutes=5)
_SYSTEM_SECONDS = 10.0  # the doctor reads more than the rest together, and its findings change slowly
_PATIENCE_SECONDS = 5.0  # for one look; a server that takes longer is shown as one that does not answer
_NO_ANSWER = (Unavailable, ServerFailed, DatabaseUnusable, DatabaseUnavailable, TimeoutError, OSError)


@click.command
@click.option("--once", is_flag=True, help="Look once; so it is also where the output is no terminal, without --json.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs: a line for each look.")
@click.option("--interval", default=2.0, show_default=True, type=click.FloatRange(0.5), help="Seconds between looks.")
@with_settings("url")
def top(settings: Settings, once: bool, as_json: bool, interval: float) -> None:
    """Show throughput, start delay, queues, workers, schedulers and findings, and renew them until `q` or Ctrl-C.

    Figures are those of the last five minutes, of the tenant of the key; queues and findings are for the operator those of
    the whole installation. A server that does not answer is shown as such, and asked again.
    """
    shows_once = once or not (as_json or sys.stdout.isatty())
    asyncio.run(_once(settings, as_json) if shows_once else _repeatedly(settings, interval, as_json))


class Looking:
    """Looks again and again, over a connection that is made anew when one fails."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._client: AsyncClient | None = None
        self._system: System | None = None
        self._system_at = float("-inf")

    async def look(self) -> Look:
        """Read everything. Raises Forbidden, Unavailable, DatabaseUnusable and the like."""
        if self._client is None:
            self._client = connected(self._settings)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await self._look(self._client)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                await client.close()

    async def _look(self, client: AsyncClient) -> Look:
        overview = await client.figures.overview()
        end = overview.read_at.replace(second=0, microsecond=0) + timedelta(minutes=1)
        series = await client.figures.series(since=end - _RECENT, until=end, step=60)
        return Look(
            overview=overview,
            recent=series.total,
            queues=await _queues(client),
            workers=await _workers(client),
            system=await self._read_system(client),
        )

    async def _read_system(self, client: AsyncClient) -> System | None:
        """Read the findings, less often than the rest; None for those who may not."""
        if self._clock.monotonic() - self._system_at >= _SYSTEM_SECONDS:
            try:
                self._system = await client.system()
            except Forbidden:
                self._system = None
            self._system_at = self._clock.monotonic()
        return self._system


async def _queues(client: AsyncClient) -> list[Queue]:
    try:
        return [queue async for queue in client.queues.list(everyone=True)]
    except Forbidden:
        return [queue async for queue in client.queues.list()]


async def _workers(client: AsyncClient) -> list[Worker]:
    try:
        return [worker async for worker in client.workers.list()]
    except Forbidden:
        return []


async def _once(settings: Settings, as_json: bool) -> None:
    from rich.console import Console

    looking = Looking(settings)
    try:
        found = await looking.look()
    finally:
        await looking.close()
    if as_json:
        print_json(document(found))
        return
    console = Console(highlight=False)
    console.print(screen(Shown(_place(settings), found), console.width, height=None))


async def _repeatedly(settings: Settings, interval: float, as_json: bool) -> None:
    looking = Looking(settings)
    try:
        if as_json:
            async for shown in _looks(settings, looking, interval, asyncio.Event()):
                if shown.error is not None:
                    print_json({"error": shown.error}, is_one_line=True)
                elif shown.look is not None:
                    print_json(document(shown.look), is_one_line=True)
            return
        await _on_screen(settings, looking, interval)
    finally:
        await looking.close()


async def _on_screen(settings: Settings, looking: Looking, interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    console, ending = Console(highlight=False), asyncio.Event()
    # The other screen of the terminal: each look is written over the one before, and what was there comes back.
    with _keys(ending), Live(console=console, screen=True, auto_refresh=False, transient=True) as live:
        async for shown in _looks(settings, looking, interval, ending):
            live.update(screen(shown, console.width, console.height), refresh=True)


async def _looks(settings: Settings, looking: Looking, interval: float, ending: asyncio.Event) -> AsyncIterator[Shown]:
    """Yield each look, or that there was no answer, until the end."""
    last: Look | None = None
    failing_since: datetime | None = None
    yield Shown(_place(settings), None)
    while not ending.is_set():
        try:
            last, failing_since, error = await looking.look(), None, None
        except _NO_ANSWER as failure:
            failing_since = failing_since or host_now()
            error = str(failure) or f"no answer within {_PATIENCE_SECONDS:g} s"
        yield Shown(_place(settings), last, error, failing_since)
        with suppress(TimeoutError):
            await asyncio.wait_for(ending.wait(), interval)


def _place(settings: Settings) -> str:
    """Say where we look."""
    if settings.url is not None:
        return settings.url
    return redacted(settings.database_url) if settings.database_url else str(settings.data)


@contextmanager
def _keys(ending: asyncio.Event) -> Iterator[None]:
    """Read single keys: `q` ends. The terminal is as it was afterwards."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, partial(_key_pressed, ending))
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _key_pressed(ending: asyncio.Event) -> None:
    if sys.stdin.read(1) in ("q", "Q", ""):
        ending.set()
