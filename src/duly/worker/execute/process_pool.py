"""The process pool: runs isolated attempts in child processes, or in tasks of a Ray cluster, and returns their outcomes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol
from uuid import UUID

import msgspec

from duly.domain.runs.outcome import Cancelled, Failed, Lost, Outcome, TimedOut
from duly.domain.runs.run import Run
from duly.worker.execute.attempt import INTERRUPTED
from duly.worker.execute.child import READY, ChildMessage, Done, Task
from duly.worker.execute.child_processes import Unloadable

STOP_GRACE_SECONDS = 5.0
_TRIES_MAX = 5
_LOOK_SECONDS = 0.5
OnMessage = Callable[[Run, ChildMessage], "asyncio.Future[bool] | None"]


class NoChild(Exception):
    """No child process could be started: nothing was started, and the run is not to blame."""


class Child(Protocol):
    """A process that runs attempts, here or on another machine, and speaks the lines of `child.py`."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def stop(self) -> None:
        """Ask it to stop what it does."""
        ...

    def close(self) -> None:
        """End it at once."""
        ...

    async def lost(self) -> Lost:
        """Return the outcome of an attempt that it had when it was gone without a word."""
        ...


class Children(Protocol):
    """The source of a pool's children."""

    async def take(self, run: Run, on_message: OnMessage) -> Child:
        """Wait for a child that may have this run; its log may say what it waits for.

        Raises Unloadable; any other error means that there is none.
        """
        ...

    def offer(self, child: Any) -> None:
        """Take a child back that has nothing to do."""
        ...

    def close(self) -> None:
        """End every child that has nothing to do."""
        ...


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

    def __init__(self, children: Children) -> None:
        self._children = children
        self._attempts: dict[tuple[UUID, int], PoolAttempt] = {}

    async def run(
        self,
        run: Run,
        saved: str | None,
        timeout: float | None,
        on_message: OnMessage,
        may_wait: Callable[[], bool],
        may_start: Callable[[], float | None],
    ) -> tuple[Outcome, bool] | None:
        """Run one attempt in a child. Returns its outcome and whether it left something behind.

        `may_wait` is asked while there is no child, and `may_start`, when there is one, gives the moment of the start.
        None: it might not start any more. Raises NoChild.
        """
        attempt = self._attempts[run.run_id, run.fence] = PoolAttempt(Task(run, saved, timeout), on_message)
        try:
            for _ in range(_TRIES_MAX):
                child = await self._take(attempt, lambda: attempt.stopped_by is None and may_wait())
                if attempt.stopped_by is not None:
                    self._give_back(child)
                    # Nothing was started: a run that only the end of the worker stops is for another worker.
                    return (attempt.stopped_by, False) if isinstance(attempt.stopped_by, Cancelled) else None
                if child is None or (started := may_start()) is None:
                    self._give_back(child)
                    return None
                attempt.task.started = started
                ended = await self._serve(attempt, child)
                if ended is not None:
                    return ended
            return Failed(f"{_TRIES_MAX} child processes, one after another, died before they took it over"), False
        except Unloadable as error:
            return attempt.stopped_by or error.failed, False
        finally:
            del self._attempts[run.run_id, run.fence]

    async def _take(self, attempt: PoolAttempt, may_wait: Callable[[], bool]) -> Child | None:
        """Wait for a child, for as long as the run may. None: it may not any more."""
        taking = asyncio.ensure_future(self._children.take(attempt.task.run, attempt.on_message))
        try:
            while not (await asyncio.wait({taking}, timeout=_LOOK_SECONDS))[0]:
                if not may_wait():
                    return None
            return await taking
        except Unloadable:
            raise
        except Exception as error:
            raise NoChild(f"none could be started: {error!r}") from error
        finally:
            taking.cancel()

    def _give_back(self, child: Child | None) -> None:
        if child is not None:
            self._children.offer(child)

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
            lost = await child.lost()
            return (attempt.stopped_by or lost, True) if attempt.taken_over or attempt.stopped_by else None
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
            attempt.child.stop()
            asyncio.get_running_loop().call_later(STOP_GRACE_SECONDS, self._kill_if_busy, run, attempt)

    def _kill_if_busy(self, run: Run, attempt: PoolAttempt) -> None:
        if self._attempts.get((run.run_id, run.fence)) is attempt and attempt.child is not None:
            attempt.child.close()

    def close(self) -> None:
        """End every child."""
        self._children.close()
        for attempt in self._attempts.values():
            if attempt.child is not None:
                attempt.child.close()
