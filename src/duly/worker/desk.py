"""The desk: what the worker writes for its runs while they run: log lines, progress, checkpoints.

Handlers live on other threads; each write is carried over to the engine's loop, which owns the connections.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from duly.clock import moment_of
from duly.domain.payload import storable, storable_value
from duly.domain.run import Run
from duly.store import runs
from duly.store.database import Database, Unavailable
from duly.store.runs import LogLine
from duly.worker.child import Said

LOG_BYTES_MAX = 1_048_576
_LINES_MAX = 50_000
_BATCH = 1_000
_MESSAGE_CHARACTERS_MAX = 8_192
_Answer = TypeVar("_Answer")


class WorkerDesk:
    """Serves the handlers of one incarnation of a worker."""

    def __init__(self, database: Database, worker_id: UUID) -> None:
        self._database = database
        self._worker_id = worker_id
        self._loop = asyncio.get_running_loop()
        self._lines: deque[LogLine] = deque(maxlen=_LINES_MAX)
        self._numbers: Counter[tuple[UUID, int]] = Counter()
        self._bytes: Counter[tuple[UUID, int]] = Counter()

    def log(self, run: Run, level: str, message: str, fields: dict[str, Any]) -> None:
        """Keep a line for the next flush, up to a cap for each attempt."""
        name = (run.run_id, run.attempt)
        text = _encode(fields)
        self._bytes[name] += len(message) + len(text or "")
        if self._bytes[name] > LOG_BYTES_MAX:
            return
        self._numbers[name] += 1
        at = moment_of(self._database.clock.now())
        self._lines.append(
            LogLine(*name, self._numbers[name], at, level, storable(str(message), _MESSAGE_CHARACTERS_MAX), text)
        )

    async def checkpoint(self, run: Run, body: str) -> bool:
        """Save a checkpoint. False: the lease is lost."""
        return await asyncio.wrap_future(self._carry(self.save_checkpoint(run, body)))

    def checkpoint_sync(self, run: Run, body: str) -> bool:
        """Save a checkpoint from a thread."""
        return self._carry(self.save_checkpoint(run, body)).result()

    async def progress(self, run: Run, fraction: float | None, message: str | None) -> None:
        """Show how far a run has come."""
        await asyncio.wrap_future(self._carry(self.save_progress(run, fraction, message)))

    def progress_sync(self, run: Run, fraction: float | None, message: str | None) -> None:
        """Show how far a run has come, from a thread."""
        self._carry(self.save_progress(run, fraction, message)).result()

    async def save_checkpoint(self, run: Run, body: str) -> bool:
        """Write a checkpoint, on the engine's loop."""
        return await runs.save_checkpoint(self._database, run.run_id, run.fence, self._worker_id, body)

    async def save_progress(self, run: Run, fraction: float | None, message: str | None) -> None:
        """Write progress, on the engine's loop; what cannot be shown is not worth a failure."""
        with contextlib.suppress(Unavailable):
            await runs.save_progress(self._database, run.run_id, run.fence, self._worker_id, fraction, message)

    def on_said(self, run: Run, said: Said) -> asyncio.Future[bool] | None:
        """Serve a handler in a child process; a checkpoint has an answer."""
        match said.what:
            case "log":
                self.log(run, said.level, said.text or "", said.fields or {})
            case "checkpoint":
                return asyncio.ensure_future(self.save_checkpoint(run, said.text or "null"))
            case "progress":
                asyncio.ensure_future(self.save_progress(run, said.fraction, said.text))  # noqa: RUF006 - progress is only shown
        return None

    def forget(self, run: Run) -> None:
        """Drop the counters of an attempt that has ended."""
        self._numbers.pop((run.run_id, run.attempt), None)
        self._bytes.pop((run.run_id, run.attempt), None)

    async def flush(self) -> None:
        """Write the lines that have gathered."""
        while self._lines:
            lines = [self._lines.popleft() for _ in range(min(_BATCH, len(self._lines)))]
            await runs.append_logs(self._database, lines)

    def _carry(self, work: Coroutine[Any, Any, _Answer]) -> Future[_Answer]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


def _encode(fields: dict[str, Any]) -> str | None:
    if not fields:
        return None
    try:
        return msgspec.json.encode(storable_value(msgspec.to_builtins(fields)), enc_hook=str).decode()
    except Exception:  # noqa: BLE001 - a log line must never fail a handler
        return msgspec.json.encode({"unreadable": storable(repr(fields))}).decode()
