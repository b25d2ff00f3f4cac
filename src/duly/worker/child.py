"""A child process that runs one handler at a time and may be killed. Run as `python -m duly.worker.child FD module:app`.

It speaks lines of JSON over one socket: `READY` goes out once the app is loaded; a `Task` comes in, and `READY` again says
that it has; `Said` lines go out while it runs, those to be written down waiting for an answer; a `Done` line ends it. It
ends with the worker's process, and with it everything that its handler started.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from datetime import datetime
from typing import Any

import msgspec

from duly.domain.outcome import Outcome
from duly.domain.run import Run
from duly.worker.attempt import attempt_in_thread, attempt_on_loop
from duly.worker.context import RunContext, plain_fields, plain_text
from duly.worker.handlers import Registry
from duly.worker.loading import load_app

READY = b"true\n"
_ORPHANED_SECONDS = 0.5


class Task(msgspec.Struct):
    """What to run. The place is the worker's business."""

    run: Run
    saved: str | None
    timeout: float | None
    started_at: datetime | None = None


class Said(msgspec.Struct):
    """Something the handler said while running."""

    what: str
    level: str = ""
    text: str | None = None
    fields: dict[str, Any] | None = None
    fraction: float | None = None


class Done(msgspec.Struct):
    """How it ended."""

    outcome: Outcome
    left_behind: bool


class Wire:
    """The child's end of the socket, and the desk its handlers speak to."""

    def __init__(self, descriptor: int) -> None:
        self._stream = socket.socket(fileno=descriptor).makefile("rwb")

    def ready(self) -> None:
        """Say that work may come, or that it has come."""
        self._stream.write(READY)
        self._stream.flush()

    def receive(self) -> Task | None:
        """Wait for work; None: the worker is gone."""
        line = self._stream.readline()
        if not line:
            return None
        self.ready()
        return msgspec.json.decode(line, type=Task)

    def send(self, message: Said | Done) -> None:
        """Say something."""
        self._stream.write(msgspec.json.encode(message) + b"\n")
        self._stream.flush()

    def log(self, run: Run, level: str, message: str, fields: dict[str, Any]) -> None:
        """Pass a log line on."""
        self.send(Said("log", level=level, text=plain_text(message), fields=plain_fields(fields)))

    def checkpoint_sync(self, run: Run, body: str) -> bool:
        """Pass a checkpoint on and wait until it is durable."""
        self.send(Said("checkpoint", text=body))
        return self._stream.readline().strip() == b"true"

    def progress_sync(self, run: Run, fraction: float | None, message: str | None) -> None:
        """Pass progress on and wait until it is shown."""
        self.send(Said("progress", text=message, fraction=fraction))
        self._stream.readline()

    async def checkpoint(self, run: Run, body: str) -> bool:
        """Pass a checkpoint on; nothing else runs here meanwhile."""
        return self.checkpoint_sync(run, body)

    async def progress(self, run: Run, fraction: float | None, message: str | None) -> None:
        """Pass progress on."""
        self.progress_sync(run, fraction, message)


def serve(wire: Wire, registry: Registry) -> None:
    """Run what comes, one at a time, until the worker hangs up."""
    wire.ready()
    while (task := wire.receive()) is not None:
        handler = registry[task.run.handler]
        context = RunContext(task.run, wire, started_at=task.started_at, saved=task.saved)
        signal.signal(signal.SIGTERM, lambda *_, context=context: _cancel(context))
        if handler.is_async:
            outcome: Outcome = asyncio.run(attempt_on_loop(handler, context, task.run.payload, task.timeout))
        else:
            outcome = attempt_in_thread(handler, context, task.run.payload)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        wire.send(Done(outcome, context.left_behind))


def end_with(parent: int) -> None:
    """Take everything the handler started along when the worker has died: its lease will go to someone else."""
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
    serve(Wire(int(sys.argv[1])), load_app(sys.argv[2]).registry)
