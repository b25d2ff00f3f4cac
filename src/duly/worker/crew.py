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
from uuid import UUID

import msgspec

from duly.clock import Clock
from duly.domain.outcome import Cancelled, Failed, Lost, Outcome, TimedOut
from duly.domain.run import Run
from duly.worker.attempt import INTERRUPTED
from duly.worker.child import READY, Done, Said, Task

STOP_GRACE_SECONDS = 5.0
IDLE_MAX = 2
_LINE_BYTES_MAX = 4_194_304
OnSaid = Callable[[Run, Said], "asyncio.Future[bool] | None"]


class Child:
    """One child process and the socket to it."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.process = process
        self.reader = reader
        self.writer = writer

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the child and everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def close(self) -> None:
        """Hang up and make sure it is gone."""
        self.writer.close()
        self.kill()


class Errand:
    """One attempt on its way through the crew."""

    def __init__(self, task: Task, on_said: OnSaid) -> None:
        self.task = task
        self.on_said = on_said
        self.child: Child | None = None
        self.taken_over = False  # The child has it: from here on its death is the run's doing.
        self.stopped_by: Outcome | None = None  # What it is when it ends because it was stopped.


class Crew:
    """Starts children on demand and keeps a few idle ones."""

    def __init__(self, app_path: str, clock: Clock) -> None:
        self._app_path = app_path
        self._clock = clock
        self._idle: list[Child] = []
        self._errands: dict[tuple[UUID, int], Errand] = {}

    async def run(
        self, run: Run, started_at: datetime, saved: str | None, timeout: float | None, on_said: OnSaid
    ) -> tuple[Outcome, bool]:
        """Run one attempt in a child. Returns its outcome and whether it left something behind."""
        errand = self._errands[run.run_id, run.fence] = Errand(Task(run, saved, timeout, started_at), on_said)
        try:
            for _ in range(IDLE_MAX + 1):
                child = self._idle.pop() if self._idle else await self._spawn()
                if errand.stopped_by is not None:
                    child.close()
                    return errand.stopped_by, False
                ended = await self._serve(errand, child)
                if ended is not None:
                    return ended
            raise RuntimeError("no child took the run over")
        finally:
            del self._errands[run.run_id, run.fence]

    async def _serve(self, errand: Errand, child: Child) -> tuple[Outcome, bool] | None:
        """Let a child run one attempt. None: it had died while idle, so nothing was started."""
        errand.child = child
        timeout = errand.task.timeout
        scope = asyncio.timeout(timeout)
        try:
            child.writer.write(msgspec.json.encode(errand.task) + b"\n")
            async with scope:
                done = await self._listen(errand, child)
        except BaseException as error:
            child.close()
            if isinstance(error, TimeoutError) and scope.expired():
                assert timeout is not None
                return TimedOut(timeout), True
            raise
        return await self._verdict(errand, child, done)

    async def _verdict(self, errand: Errand, child: Child, done: Done | None) -> tuple[Outcome, bool] | None:
        if len(self._idle) < IDLE_MAX and done is not None and errand.stopped_by is None:
            self._idle.append(child)
        else:
            child.close()
        if done is None:
            await child.process.wait()
            return (errand.stopped_by or Lost(named=True), True) if errand.taken_over or errand.stopped_by else None
        if errand.stopped_by is not None and isinstance(done.outcome, Cancelled):
            return errand.stopped_by, done.left_behind
        return done.outcome, done.left_behind

    async def _listen(self, errand: Errand, child: Child) -> Done | None:
        """Follow what the child says, to its end. None: it died."""
        with contextlib.suppress(ConnectionError):  # It died before it had read all we wrote.
            while line := await child.reader.readline():
                if line == READY:
                    errand.taken_over = True
                elif line.startswith(b'{"what"'):
                    answer = errand.on_said(errand.task.run, msgspec.json.decode(line, type=Said))
                    if answer is not None:
                        child.writer.write(b"true\n" if await answer else b"false\n")
                else:
                    return msgspec.json.decode(line, type=Done)
        return None

    def cancel(self, run: Run) -> None:
        """Stop an attempt because someone asked for it: the run is cancelled."""
        self._stop(run, Cancelled())

    def interrupt(self, run: Run) -> None:
        """Stop an attempt because the worker ends: it has failed, and may be tried again."""
        self._stop(run, Failed(INTERRUPTED))

    def _stop(self, run: Run, outcome: Outcome) -> None:
        """Ask a child to stop; kill it when it does not within its grace."""
        errand = self._errands.get((run.run_id, run.fence))
        if errand is None:
            return
        errand.stopped_by = errand.stopped_by or outcome
        if errand.child is not None:
            errand.child.kill(signal.SIGTERM)
            asyncio.get_running_loop().call_later(STOP_GRACE_SECONDS, self._kill_if_busy, run, errand)

    def _kill_if_busy(self, run: Run, errand: Errand) -> None:
        if self._errands.get((run.run_id, run.fence)) is errand and errand.child is not None:
            errand.child.kill()

    def close(self) -> None:
        """End every child."""
        for child in (*self._idle, *(errand.child for errand in self._errands.values())):
            if child is not None:
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
        child = Child(process, reader, writer)
        if await reader.readline() != READY:  # Loading the app takes its time, which is not the handler's.
            child.close()
            raise RuntimeError(f"it could not load {self._app_path}, status {await process.wait()}")
        return child
