"""A child process that runs one handler at a time and may be killed.

Run as `python -m duly.worker.execute.child FD module:app`.

It speaks lines of JSON over one socket: `READY` goes out once the app is loaded, or a `Done` with the error; a `Task`
comes in, and `READY` again confirms it; `ChildMessage` lines go out while it runs, a checkpoint waiting for its answer; a
`Done` line ends it. It ends with the worker's process, and with it everything that its handler started.

Excess output ends here: so many log lines an attempt, and a few progress reports a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from functools import partial
from typing import Any

import msgspec

from duly.domain.runs.outcome import Outcome
from duly.domain.runs.progress import Progress
from duly.domain.runs.run import Run
from duly.worker.context import RunContext, plain_fields, plain_text
from duly.worker.execute.attempt import attempt_in_thread, attempt_on_loop, outcome_of, unprepared
from duly.worker.execute.captured import captured, write_lines_at_once
from duly.worker.handlers import Handler, Registry
from duly.worker.loading import load_app

READY = b"true\n"
LOG_BYTES_MAX = 1_048_576
_PROGRESS_SECONDS = 0.2
_ORPHANED_SECONDS = 0.5


class Task(msgspec.Struct):
    """A task for a child process."""

    run: Run
    saved: str | None
    timeout: float | None
    started: float | None = None


class ChildMessage(msgspec.Struct):
    """A message of the handler while running."""

    kind: str
    level: str = ""
    text: str | None = None
    fields: dict[str, Any] | None = None
    progress: Progress | None = None
    count: int = 0


class Done(msgspec.Struct):
    """The end of a task."""

    outcome: Outcome
    left_behind: bool


class Wire:
    """The child's end of the socket, and the services its handlers use; from any thread, each message whole."""

    def __init__(self, descriptor: int) -> None:
        self._stream = socket.socket(fileno=descriptor).makefile("rwb")
        self._lock = threading.RLock()
        self._bytes = 0
        self._dropped = 0
        self._progress: Progress | None = None
        self._has_progress = threading.Event()
        self._saving = threading.Lock()
        threading.Thread(target=self._pass_progress_on, name="progress", daemon=True).start()

    def ready(self) -> None:
        """Confirm that a task may come, or that it has come."""
        self._stream.write(READY)
        self._stream.flush()

    def receive(self) -> Task | None:
        """Wait for a task; None: the worker has ended."""
        line = self._stream.readline()
        if not line:
            return None
        self.ready()
        return msgspec.json.decode(line, type=Task)

    def send(self, message: ChildMessage | Done) -> None:
        """Send a message."""
        with self._lock:
            self._stream.write(msgspec.json.encode(message) + b"\n")
            self._stream.flush()

    def log(self, run: Run, level: str, message: str, fields: dict[str, Any]) -> None:
        """Pass a log line on, up to a cap for each attempt; the rest is counted."""
        with self._lock:
            if self._bytes > LOG_BYTES_MAX:
                self._dropped += 1
                return
            text, more = plain_text(message), plain_fields(fields)
            self._bytes += len(text) + (len(msgspec.json.encode(more)) if more else 0)
            self.send(ChildMessage("log", level=level, text=text, fields=more))

    def end(self, done: Done) -> None:
        """Report the end of an attempt, after everything still to be sent of it."""
        with self._lock:
            self._send_progress()
            if self._dropped:
                self.send(ChildMessage("dropped", count=self._dropped))
            self._bytes = self._dropped = 0
            self.send(done)

    def checkpoint_sync(self, run: Run, body: str) -> bool:
        """Pass a checkpoint on and wait until it is durable."""
        with self._saving:
            self.send(ChildMessage("checkpoint", text=body))
            return self._stream.readline().strip() == b"true"

    def progress(self, run: Run, progress: Progress) -> None:
        """Record progress, to be passed on in a moment."""
        with self._lock:
            self._progress = progress
        self._has_progress.set()

    async def checkpoint(self, run: Run, body: str) -> bool:
        """Pass a checkpoint on; nothing else runs here meanwhile."""
        return self.checkpoint_sync(run, body)

    def _pass_progress_on(self) -> None:
        while self._has_progress.wait():
            self._has_progress.clear()
            with contextlib.suppress(OSError, ValueError):  # the worker has closed the socket
                self._send_progress()
            threading.Event().wait(_PROGRESS_SECONDS)

    def _send_progress(self) -> None:
        with self._lock:
            progress, self._progress = self._progress, None
            if progress is not None:
                self.send(ChildMessage("progress", progress=progress))


def loaded(wire: Wire, path: str) -> Registry:
    """Load the app. An error is reported before it ends us."""
    try:
        registry: Registry = load_app(path).registry
    except BaseException as error:
        wire.send(Done(unprepared(error), left_behind=False))
        raise
    return registry


def serve(wire: Wire, registry: Registry) -> None:
    """Run tasks, one at a time, until the worker closes the socket."""
    wire.ready()
    while (task := wire.receive()) is not None:
        handler = registry[task.run.handler]
        context = RunContext(task.run, wire, started=task.started, saved=task.saved)
        signal.signal(signal.SIGTERM, lambda *_, context=context: _cancel(context))
        with captured(partial(_keep, context)):
            outcome = _attempt(handler, context, task)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        wire.end(Done(outcome, context.left_behind))


def _keep(context: RunContext, stream: str, line: str) -> None:
    context.keep_line(stream, line, {})


def _attempt(handler: Handler, context: RunContext, task: Task) -> Outcome:
    if handler.is_async:
        try:
            return asyncio.run(attempt_on_loop(handler, context, task.run.payload, task.timeout))
        # the signal interrupted the loop itself; the handler has cleaned up by now
        except asyncio.CancelledError as error:
            return outcome_of(error, context)
    return attempt_in_thread(handler, context, task.run.payload)


def end_with(parent: int) -> None:
    """End everything that the handler started when the worker has died: its lease will go to another."""
    while os.getppid() == parent:
        threading.Event().wait(_ORPHANED_SECONDS)
    os.killpg(0, signal.SIGKILL)


def _cancel(context: RunContext) -> None:
    context.mark_cancelled()
    raise asyncio.CancelledError


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    write_lines_at_once()
    wire = Wire(int(sys.argv[1]))
    serve(wire, loaded(wire, sys.argv[2]))
