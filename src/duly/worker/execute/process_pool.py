"""The process pool: runs isolated attempts in child processes, and returns their outcomes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from datetime import datetime
from uuid import UUID

import msgspec

from duly.domain.runs.outcome import Cancelled, Failed, Lost, Outcome, TimedOut
from duly.domain.runs.run import Run
from duly.worker.execute.attempt import INTERRUPTED
from duly.worker.execute.child import READY, Done, Said, Task
from duly.worker.execute.children import Child, Children, Unloadable

STOP_GRACE_SECONDS = 5.0
_TRIES_MAX = 5
OnSaid = Callable[[Run, Said], "asyncio.Future[bool] | None"]


class NoChild(Exception):
    """No child process could be started: nothing was started, and the run is not to blame."""


class WorkflowTask:
    """One attempt on its way through the process pool."""

    def __init__(self, task: Task, on_said: OnSaid) -> None:
        self.task = task
        self.on_said = on_said
        self.child: Child | None = None
        self.taken_over = False  # the child has it: from here on its crash is the run's fault
        self.stopped_by: Outcome | None = None  # the outcome if it ends because it was stopped


class ProcessPool:
    """The attempts in child processes."""

    def __init__(self, app_path: str) -> None:
        self._children = Children(app_path)
        self._tasks: dict[tuple[UUID, int], WorkflowTask] = {}

    async def run(
        self,
        run: Run,
        started_at: datetime,
        saved: str | None,
        timeout: float | None,
        on_said: OnSaid,
        may_start: Callable[[], bool],
    ) -> tuple[Outcome, bool] | None:
        """Run one attempt in a child. Returns its outcome and whether it left something behind.

        None: when a child was there, it might not start any more. Raises NoChild.
        """
        task = self._tasks[run.run_id, run.fence] = WorkflowTask(Task(run, saved, timeout, started_at), on_said)
        try:
            for _ in range(_TRIES_MAX):
                child = await self._take()
                if task.stopped_by is not None:
                    self._children.offer(child)
                    return task.stopped_by, False
                if not may_start():
                    self._children.offer(child)
                    return None
                ended = await self._serve(task, child)
                if ended is not None:
                    return ended
            return Failed(f"{_TRIES_MAX} child processes, one after another, died before they took it over"), False
        except Unloadable as error:
            return task.stopped_by or error.failed, False
        finally:
            del self._tasks[run.run_id, run.fence]

    async def _take(self) -> Child:
        try:
            return await self._children.take()
        except Unloadable:
            raise
        except Exception as error:
            raise NoChild(f"none could be started: {error!r}") from error

    async def _serve(self, task: WorkflowTask, child: Child) -> tuple[Outcome, bool] | None:
        """Let a child run one attempt. None: it had died while idle, so nothing was started."""
        task.child = child
        timeout = task.task.timeout
        scope = asyncio.timeout(timeout)
        try:
            child.writer.write(msgspec.json.encode(task.task) + b"\n")
            async with scope:
                done = await self._listen(task, child)
        except BaseException as error:
            child.close()
            if isinstance(error, TimeoutError) and scope.expired():
                assert timeout is not None
                return TimedOut(timeout), True
            raise
        return await self._verdict(task, child, done)

    async def _verdict(self, task: WorkflowTask, child: Child, done: Done | None) -> tuple[Outcome, bool] | None:
        if done is not None and task.stopped_by is None:
            self._children.offer(child)
        else:
            child.close()
        if done is None:
            await child.process.wait()
            return (task.stopped_by or Lost(named=True), True) if task.taken_over or task.stopped_by else None
        if task.stopped_by is not None and isinstance(done.outcome, Cancelled):
            return task.stopped_by, done.left_behind
        return done.outcome, done.left_behind

    async def _listen(self, task: WorkflowTask, child: Child) -> Done | None:
        """Read the child's messages, to the end. None: it died."""
        with contextlib.suppress(ConnectionError):  # it died before it had read everything
            while line := await child.reader.readline():
                if line == READY:
                    task.taken_over = True
                elif line.startswith(b'{"what"'):
                    answer = task.on_said(task.task.run, msgspec.json.decode(line, type=Said))
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
        task = self._tasks.get((run.run_id, run.fence))
        if task is None:
            return
        task.stopped_by = task.stopped_by or outcome
        if task.child is not None:
            task.child.kill(signal.SIGTERM)
            asyncio.get_running_loop().call_later(STOP_GRACE_SECONDS, self._kill_if_busy, run, task)

    def _kill_if_busy(self, run: Run, task: WorkflowTask) -> None:
        if self._tasks.get((run.run_id, run.fence)) is task and task.child is not None:
            task.child.kill()

    def close(self) -> None:
        """End every child."""
        self._children.close()
        for task in self._tasks.values():
            if task.child is not None:
                task.child.close()
