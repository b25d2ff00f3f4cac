"""Child processes of a worker: each runs one handler after another, and can be killed.

A waiting run gets the first free child, new or used: when many runs come at once, quick ones are over before the tenth
child has loaded the app.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections import deque

import msgspec

from duly.domain.runs.outcome import Failed, Lost
from duly.domain.runs.payload import storable
from duly.domain.runs.run import Run
from duly.worker.execute.child import READY, Done

IDLE_MAX = 2
LINGER_SECONDS = 2.0  # how long surplus children stay
# A child that takes longer hangs, and the slot of its run would be taken for ever.
LOADING_SECONDS_MAX = 300.0
LOADING_MAX = 2  # more at once would load no sooner, and the first of them later
_LINE_BYTES_MAX = 4_194_304
_ENDING_SECONDS = 5.0  # how long a child that could not load the app may take to end
_REASON_CHARACTERS_MAX = 2_000


class Unloadable(Exception):
    """A child could not load the app: the process started, so the next would fail the same. `failed` has the reason."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.reason)
        self.failed = failed


class ChildProcess:
    """One child process and the socket to it."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.process = process
        self.reader = reader
        self.writer = writer

    @property
    def is_alive(self) -> bool:
        """Return whether it has not ended, as far as we know."""
        return self.process.returncode is None

    def stop(self) -> None:
        """Ask the child, and everything it started, to stop."""
        self._signal(signal.SIGTERM)

    def close(self) -> None:
        """Close the socket and make sure that it has ended."""
        self.writer.close()
        self._signal(signal.SIGKILL)

    async def lost(self) -> Lost:
        """Wait for the end of a child that died, and return the outcome of the run that it had: the run is to blame."""
        await self.process.wait()
        return Lost(named=True)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class ChildProcesses:
    """Starts children on demand and keeps a few idle ones."""

    def __init__(self, app_path: str) -> None:
        self._app_path = app_path
        self._unloaded = f"{app_path} could not be loaded in a child process"
        self._idle: list[ChildProcess] = []
        self._wanted: deque[asyncio.Future[ChildProcess]] = deque()
        self._loading: set[asyncio.Task[None]] = set()
        self._closed = False

    async def take(self, run: Run, on_message: object) -> ChildProcess:
        """Return an idle child, or the first that comes free, whatever the run."""
        while self._idle:
            if (child := self._idle.pop()).is_alive:
                return child
            child.close()
        wanted: asyncio.Future[ChildProcess] = asyncio.get_running_loop().create_future()
        self._wanted.append(wanted)
        self._load_more()
        try:
            return await wanted
        except asyncio.CancelledError:
            if wanted in self._wanted:
                self._wanted.remove(wanted)
            elif not wanted.cancelled() and wanted.exception() is None:
                self.offer(wanted.result())
            raise

    def offer(self, child: ChildProcess) -> None:
        """Pass a child to the longest waiter; without one, keep it for a while."""
        while self._wanted:
            wanted = self._wanted.popleft()
            if not wanted.done():
                wanted.set_result(child)
                return
        self._idle.append(child)
        if self._closed:
            self._dismiss(child)
        elif len(self._idle) > IDLE_MAX:
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._dismiss, child)

    def close(self) -> None:
        """End idle children; one that is still loading ends when it has."""
        self._closed = True
        for child in list(self._idle):
            self._dismiss(child)

    def _dismiss(self, child: ChildProcess) -> None:
        """End a surplus child."""
        if child in self._idle and (self._closed or len(self._idle) > IDLE_MAX):
            self._idle.remove(child)
            child.close()

    def _load_more(self) -> None:
        while len(self._loading) < min(LOADING_MAX, len(self._wanted)):
            task = asyncio.create_task(self._load())
            self._loading.add(task)
            task.add_done_callback(self._loaded)

    def _loaded(self, task: asyncio.Task[None]) -> None:
        self._loading.discard(task)
        self._load_more()

    async def _load(self) -> None:
        """Start a child for one of the waiters. A failure is raised to the first of them."""
        try:
            self.offer(await self._spawn())
        except Exception as error:  # noqa: BLE001 - it is raised where a run waits for it
            if self._wanted and not (wanted := self._wanted.popleft()).done():
                wanted.set_exception(error)

    async def _spawn(self) -> ChildProcess:
        """Start a child and let it load the app, which does not count as the handler's time. Raises Unloadable."""
        child = await self._start()
        try:
            said = await asyncio.wait_for(child.reader.readline(), LOADING_SECONDS_MAX)
        except TimeoutError:
            child.close()
            await child.process.wait()
            raise Unloadable(Failed(f"{self._unloaded} within {LOADING_SECONDS_MAX:g} s")) from None
        if said == READY:
            return child
        with contextlib.suppress(TimeoutError):  # it may still be writing its error to standard error
            await asyncio.wait_for(child.process.wait(), _ENDING_SECONDS)
        child.close()
        raise Unloadable(self._failed(said, await child.process.wait()))

    def _failed(self, said: bytes, status: int) -> Failed:
        """Return why the app was not loaded: in the child's own words, if it had time for them."""
        reason = f"{self._unloaded}, which ended with status {status}"
        with contextlib.suppress(msgspec.DecodeError):
            if isinstance(failed := msgspec.json.decode(said, type=Done).outcome, Failed):
                return Failed(storable(f"{reason}: {failed.reason}", _REASON_CHARACTERS_MAX), detail=failed.detail)
        return Failed(reason)

    async def _start(self) -> ChildProcess:
        """Start a process. If that fails, neither end of its socket stays open."""
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "duly.worker.execute.child",
                str(theirs.fileno()),
                self._app_path,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours, limit=_LINE_BYTES_MAX)
        return ChildProcess(process, reader, writer)
