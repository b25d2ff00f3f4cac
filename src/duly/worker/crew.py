"""The crew: child processes that run what may have to be killed. A child serves many runs; one that dies is replaced."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Callable
from datetime import datetime

import msgspec

from duly.clock import Clock
from duly.domain.outcome import Cancelled, Lost, Outcome, TimedOut
from duly.domain.run import Run
from duly.worker.child import Done, Said, Task

STOP_GRACE_SECONDS = 5.0
IDLE_MAX = 2
_LINE_BYTES_MAX = 4_194_304


class Child:
    """One child process and the socket to it."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.process = process
        self.reader = reader
        self.writer = writer
        self.cancelled = False

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the child and everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def close(self) -> None:
        """Hang up and make sure it is gone."""
        self.writer.close()
        self.kill()


class Crew:
    """Starts children on demand and keeps a few idle ones."""

    def __init__(self, app_path: str, clock: Clock) -> None:
        self._app_path = app_path
        self._clock = clock
        self._idle: list[Child] = []
        self._busy: dict[tuple[object, int], Child] = {}

    async def run(
        self,
        run: Run,
        started_at: datetime,
        saved: str | None,
        timeout: float | None,
        on_said: Callable[[Run, Said], asyncio.Future[bool] | None],
    ) -> tuple[Outcome, bool]:
        """Run one attempt in a child. Returns its outcome and whether it left something behind."""
        child = self._idle.pop() if self._idle else await self._spawn()
        self._busy[run.run_id, run.fence] = child
        try:
            child.writer.write(msgspec.json.encode(Task(run, saved, timeout, started_at)) + b"\n")
            done = await asyncio.wait_for(self._listen(child, run, on_said), timeout)
        except TimeoutError:
            child.close()
            assert timeout is not None
            return TimedOut(timeout), True
        finally:
            del self._busy[run.run_id, run.fence]
        return await self._verdict(child, done)

    async def _verdict(self, child: Child, done: Done | None) -> tuple[Outcome, bool]:
        if done is None:
            child.close()
            await child.process.wait()
            return (Cancelled() if child.cancelled else Lost(named=True)), True
        if len(self._idle) < IDLE_MAX and not child.cancelled:
            self._idle.append(child)
        else:
            child.close()
        return done.outcome, done.left_behind

    async def _listen(
        self, child: Child, run: Run, on_said: Callable[[Run, Said], asyncio.Future[bool] | None]
    ) -> Done | None:
        """Follow what the child says, to its end. None: it died."""
        while line := await child.reader.readline():
            if line.startswith(b'{"what"'):
                answer = on_said(run, msgspec.json.decode(line, type=Said))
                if answer is not None:
                    child.writer.write(b"true\n" if await answer else b"false\n")
            else:
                return msgspec.json.decode(line, type=Done)
        return None

    def cancel(self, run: Run) -> None:
        """Ask a running child to stop; kill it when it does not within its grace."""
        child = self._busy.get((run.run_id, run.fence))
        if child is not None:
            child.cancelled = True
            child.kill(signal.SIGTERM)
            asyncio.get_running_loop().call_later(STOP_GRACE_SECONDS, self._kill_if_busy, run, child)

    def _kill_if_busy(self, run: Run, child: Child) -> None:
        if self._busy.get((run.run_id, run.fence)) is child:
            child.kill()

    def close(self) -> None:
        """End every child."""
        for child in (*self._idle, *self._busy.values()):
            child.close()
        self._idle.clear()

    async def _spawn(self) -> Child:
        ours, theirs = socket.socketpair()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "duly.worker.child",
            str(theirs.fileno()),
            self._app_path,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
        theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours, limit=_LINE_BYTES_MAX)
        return Child(process, reader, writer)
