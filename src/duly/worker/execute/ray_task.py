"""The task of an attempt, in a process of a Ray cluster: a child of the worker's process pool that is far away.

It is a Ray actor that is named after its run, so the cluster never has two of one run. The handler runs in a thread and
speaks the lines of `child.py` over a socket, whose other end `receive` and `send` are; the driver calls these.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable

import msgspec
import ray

from duly.domain.runs.outcome import Outcome
from duly.worker.context import RunContext
from duly.worker.execute.attempt import attempt_in_thread, attempt_on_loop, unprepared
from duly.worker.execute.captured import captured, write_lines_at_once
from duly.worker.execute.child import Done, Task, Wire
from duly.worker.handlers import Handler, Registry
from duly.worker.loading import load_app

_READ_BYTES = 262_144


class RayTask:
    """The actor. The driver calls its methods, each on a thread: with an `async def` among them all would share a loop."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._attempt = _Attempt(Wire(theirs.detach()))

    def load(self, app_path: str) -> tuple[str, bytes | None]:
        """Load the app. Returns the node, and the line that reports why it could not be loaded."""
        node: str = ray.get_runtime_context().get_node_id()
        try:
            registry: Registry = load_app(app_path).registry
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the outcome
            return node, msgspec.json.encode(Done(unprepared(error), left_behind=False)) + b"\n"
        write_lines_at_once()
        threading.Thread(target=self._attempt.run, args=(registry,), name="attempt", daemon=True).start()
        return node, None

    def send(self, line: bytes) -> None:
        """Pass a line of the worker on: the task, or the answer to a checkpoint."""
        self._ours.sendall(line)

    def receive(self) -> bytes:
        """Wait for what the attempt has to say."""
        return self._ours.recv(_READ_BYTES)

    def cancel(self) -> None:
        """Ask the handler to stop."""
        self._attempt.cancel()


class _Attempt:
    """The attempt, on a thread of its own."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._lock = threading.Lock()
        self._on_cancel: Callable[[], None] | None = None
        self._is_cancelled = False

    def cancel(self) -> None:
        """Ask the handler to stop, from any thread."""
        with self._lock:
            self._is_cancelled = True
            if self._on_cancel is not None:
                self._on_cancel()

    def run(self, registry: Registry) -> None:
        """Wait for the task, run it, and report its outcome."""
        if (task := self._wire.receive()) is None:
            return
        context = RunContext(task.run, self._wire, started=task.started, saved=task.saved)
        try:
            handler = registry[task.run.handler]
            with captured(lambda stream, line: context.keep_line(stream, line, {})):
                outcome = self._outcome(handler, context, task)
        except BaseException as error:  # noqa: BLE001 - as above
            outcome = unprepared(error)
        self._wire.end(Done(outcome, context.left_behind))

    def _outcome(self, handler: Handler, context: RunContext, task: Task) -> Outcome:
        if handler.is_async:
            return asyncio.run(self._on_loop(handler, context, task))
        self._when_cancelled(context.mark_cancelled)
        return attempt_in_thread(handler, context, task.run.payload)

    async def _on_loop(self, handler: Handler, context: RunContext, task: Task) -> Outcome:
        loop = asyncio.get_running_loop()
        attempt = asyncio.create_task(attempt_on_loop(handler, context, task.run.payload, task.timeout))

        def cancel() -> None:
            context.mark_cancelled()
            loop.call_soon_threadsafe(attempt.cancel)

        await asyncio.sleep(0)  # a task that is cancelled before its first step has no outcome
        self._when_cancelled(cancel)
        try:
            return await attempt
        finally:
            self._when_cancelled(context.mark_cancelled)  # the loop is about to be closed

    def _when_cancelled(self, act: Callable[[], None]) -> None:
        """Set what a cancel does; one that came before does it now."""
        with self._lock:
            self._on_cancel = act
            if self._is_cancelled:
                act()
