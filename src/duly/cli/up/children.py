"""Child processes: started, stopped in good order, and restarted when they die.

A child has a session of its own, so that Ctrl-C in the terminal reaches only us, who then stop it in order; and its
standard input is a pipe from us, so that it ends when we do, however we end.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Sequence

from duly.clock import Clock
from duly.log import Log

_BACKOFF_SECONDS, _BACKOFF_SECONDS_MAX = 0.5, 30.0
# A child that lived so long did not die of its start.
_LIVED_SECONDS = 60.0


def duly_command(*arguments: str) -> list[str]:
    """Return the command line that runs `duly` with the interpreter we run on."""
    return [sys.executable, "-m", "duly", *arguments]


class Child:
    """One process at a time of one command."""

    def __init__(self, command: Sequence[str], *, stdout: int | None = None, pass_fds: Sequence[int] = ()) -> None:
        self._command = command
        self._stdout = DEVNULL if stdout is None and not _has_stdout() else stdout
        self._pass_fds = pass_fds
        self._process: Process | None = None

    async def start(self) -> None:
        """Start it."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=self._stdout, start_new_session=True, pass_fds=self._pass_fds
        )

    async def wait(self) -> int:
        """Wait for its end and return its status."""
        assert self._process is not None
        return await self._process.wait()

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.returncode if self._process else None

    async def stop(self, seconds: float) -> None:
        """Ask it to end, and kill it when it takes too long."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(seconds):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


class Keeper:
    """Restarts a child when it dies, with back-off, until it is stopped."""

    def __init__(self, child: Child, what: str, *, clock: Clock, log: Log, on_death: Callable[[int], None]) -> None:
        self._child = child
        self._what = what
        self._clock = clock
        self._log = log
        self._on_death = on_death
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the child and watch over it."""
        await self._child.start()
        self._task = asyncio.create_task(self._keep(), name=self._what)

    async def stop(self, seconds: float) -> None:
        """Stop the child for good."""
        self._stopping.set()
        await self._child.stop(seconds)
        if self._task is not None:
            self._task.cancel()

    async def _keep(self) -> None:
        pause = _BACKOFF_SECONDS
        while True:
            began = self._clock.monotonic()
            status = await self._child.wait()
            if self._stopping.is_set():
                return
            pause = _BACKOFF_SECONDS if self._clock.monotonic() - began > _LIVED_SECONDS else pause
            self._log.warning("child_died", what=self._what, status=status, again_in_seconds=pause)
            self._on_death(status)
            await self._clock.sleep(pause)
            pause = min(_BACKOFF_SECONDS_MAX, pause * 2)
            await self._child.start()


def _has_stdout() -> bool:
    return sys.stdout is not None
