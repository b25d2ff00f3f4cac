"""The process pool: runs isolated attempts in child processes, and returns their outcomes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from uuid import UUID

import msgspec

from duly.domain.runs.outcome import Cancelled, Failed, Lost, Outcome, TimedOut
from duly.domain.runs.run import Run
from duly.worker.execute.attempt import INTERRUPTED
from duly.worker.execute.child import READY, ChildMessage, Done, Task
from duly.worker.execute.child_processes import Child, ChildProcesses, Unloadable

STOP_GRACE_SECONDS = 5.0
_TRIES_MAX = 5
OnMessage = Callable[[Run, ChildMessage], "asyncio.Future[bool] | None"]


class NoChild(Exception):
    """No child process could be started: nothing was started, and the run is not to blame."""


class PoolAttempt:
    """One attempt on its way through the process pool."""

    def __init__(self, task: Task, on_message: OnMessage) -> None:
        self.task = task
        self.on_message = on_message
        self.child: Child | None = None
        self.taken_over = False  # the child has it: from here on its crash is the run's fault
        self.stopped_by: Outcome | None = None  # the outcome if it ends because it was stopped


class ProcessPool:
    """The attempts in child processes."""

    def __init__(self, app_path: str) -> None:
        self._children = ChildProcesses(app_path)
        self._attempts: dict[tuple[UUID, int], PoolAttempt] = {}

    async def run(
        self,
        run: Run,
        started: float,
        saved: str | None,
        timeout: float | None,
        on_message: OnMessage,
        may_start: Callable[[], bool],
    ) -> tuple[Outcome, bool] | None:
        """Run one attempt in a child. Returns its outcome and whether it left something behind.

        None: when a child was there, it might not start any more. Raises NoChild.
        """
        attempt = self._attempts[run.run_id, run.fence] = PoolAttempt(Task(run, saved, timeout, started), on_message)
        try:
            for _ in range(_TRIES_MAX):
                child = await self._take()
                if attempt.stopped_by is not None:
                    self._children.offer(child)
                    return attempt.stopped_by, False
                if not may_start():
                    self._children.offer(child)
                    return None
                ended = await self._serve(attempt, child)
                if ended is not None:
                    return ended
            return Failed(f"{_TRIES_MAX} child processes, one after another, died before they took it over"), False
        except Unloadable as error:
            return attempt.stopped_by or error.failed, False
        finally:
            del self._attempts[run.run_id, run.fence]

    async def _take(self) -> Child:
        try:
            return await self._children.take()
        except Unloadable:
            raise
        except Exception as error:
            raise NoChild(f"none could be started: {error!r}") from error

    async def _serve(self, attempt: PoolAttempt, child: Child) -> tuple[Outcome, bool] | None:
        """Let a child run one attempt. None: it had died while idle, so nothing was started."""
        attempt.child = child
        timeout = attempt.task.timeout
        scope = asyncio.timeout(timeout)
        try:
            child.writer.write(msgspec.json.encode(attempt.task) + b"\n")
            async with scope:
                done = await self._listen(attempt, child)
        except BaseException as error:
            child.close()
            if isinstance(error, TimeoutError) and scope.expired():
                assert timeout is not None
                return TimedOut(timeout), True
            raise
        return await self._verdict(attempt, child, done)

    async def _verdict(self, attempt: PoolAttempt, child: Child, done: Done | None) -> tuple[Outcome, bool] | None:
        if done is not None and attempt.stopped_by is None:
            self._children.offer(child)
        else:
            child.close()
        if done is None:
            await child.process.wait()
            return (attempt.stopped_by or Lost(named=True), True) if attempt.taken_over or attempt.stopped_by else None
        if attempt.stopped_by is not None and isinstance(done.outcome, Cancelled):
            return attempt.stopped_by, done.left_behind
        return done.outcome, done.left_behind

    async def _listen(self, attempt: PoolAttempt, child: Child) -> Done | None:
        """Read the child's messages, to the end. None: it died."""
        with contextlib.suppress(ConnectionError):  # it died before it had read everything
            while line := await child.reader.readline():
                if line == READY:
                    attempt.taken_over = True
                elif line.startswith(b'{"kind"'):
                    answer = attempt.on_message(attempt.task.run, msgspec.json.decode(line, type=ChildMessage))
                    if answer is not None:
                        child.writer.write(b"true\n" if await answer else b"false\n")
                else:
                    return msgspec.json.decode(line, type=Done)
        return None

    def cancel(self, run: Run) -> None:
        """Stop an attempt that was asked to stop: the run is cancelled."""
        self._stop(run, Cancelled())

    def interrupt(self, run: Run) -> None:
        """Stop an attempt because the worker ends: it has failed, and may be retried."""
        self._stop(run, Failed(INTERRUPTED))

    def _stop(self, run: Run, outcome: Outcome) -> None:
        """Ask a child to stop; kill it after its grace period."""
        attempt = self._attempts.get((run.run_id, run.fence))
        if attempt is None:
            return
        attempt.stopped_by = attempt.stopped_by or outcome
        if attempt.child is not None:
            attempt.child.kill(signal.SIGTERM)
            asyncio.get_running_loop().call_later(STOP_GRACE_SECONDS, self._kill_if_busy, run, attempt)

    def _kill_if_busy(self, run: Run, attempt: PoolAttempt) -> None:
        if self._attempts.get((run.run_id, run.fence)) is attempt and attempt.child is not None:
            attempt.child.kill()

    def close(self) -> None:
        """End every child."""
        self._children.close()
        for attempt in self._attempts.values():
            if attempt.child is not None:
                attempt.child.close()
