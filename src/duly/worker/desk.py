"""The desk: what the worker writes for its runs while they run: log lines, progress, checkpoints.

Handlers live on other threads; each write is carried over to the engine's loop, which owns the connections.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from duly.clock import moment_of
from duly.domain.run import Run
from duly.store import runs
from duly.store.database import Database, Unavailable
from duly.store.runs import LogLine
from duly.worker.child import Said
from duly.worker.context import plain_fields, plain_text

LOG_BYTES_MAX = 1_048_576
_LINES_MAX = 50_000
_BATCH = 1_000
_RETRY_SECONDS = 0.2
_Answer = TypeVar("_Answer")


class WorkerDesk:
    """Serves the handlers of one incarnation of a worker."""

    def __init__(self, database: Database, worker_id: UUID, is_safe: Callable[[], bool]) -> None:
        self._database = database
        self._worker_id = worker_id
        self._is_safe = is_safe
        self._loop = asyncio.get_running_loop()
        self._lines: deque[LogLine] = deque(maxlen=_LINES_MAX)
        self._numbers: Counter[tuple[UUID, int]] = Counter()
        self._bytes: Counter[tuple[UUID, int]] = Counter()

    def log(self, run: Run, level: str, message: str, fields: dict[str, Any]) -> None:
        """Keep a line for the next flush, up to a cap for each attempt."""
        name = (run.run_id, run.attempt)
        text, more = plain_text(message), msgspec.json.encode(plain_fields(fields)).decode() if fields else None
        self._bytes[name] += len(text) + len(more or "")
        if self._bytes[name] > LOG_BYTES_MAX:
            return
        self._numbers[name] += 1
        at = moment_of(self._database.clock.now())
        self._lines.append(LogLine(*name, self._numbers[name], at, level, text, more))

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
        """Write a checkpoint, on the engine's loop; while the database does not answer and the lease stands, ask again."""
        while True:
            try:
                return await runs.save_checkpoint(self._database, run.run_id, run.fence, self._worker_id, body)
            except Unavailable:
                if not self._is_safe():
                    return False
            await self._database.clock.sleep(_RETRY_SECONDS)

    async def save_progress(self, run: Run, fraction: float | None, message: str | None) -> bool:
        """Write progress, on the engine's loop; what cannot be shown is not worth a failure."""
        with contextlib.suppress(Unavailable):
            await runs.save_progress(self._database, run.run_id, run.fence, self._worker_id, fraction, message)
        return True

    def on_said(self, run: Run, said: Said) -> asyncio.Future[bool] | None:
        """Serve a handler in a child process; it waits for what is written, so that this is written in order."""
        match said.what:
            case "log":
                self.log(run, said.level, said.text or "", said.fields or {})
            case "checkpoint":
                return asyncio.ensure_future(self.save_checkpoint(run, said.text or "null"))
            case "progress":
                return asyncio.ensure_future(self.save_progress(run, said.fraction, said.text))
        return None

    def forget(self, run: Run) -> None:
        """Drop the counters of an attempt that has ended."""
        self._numbers.pop((run.run_id, run.attempt), None)
        self._bytes.pop((run.run_id, run.attempt), None)

    async def flush(self) -> None:
        """Write the lines that have gathered."""
        while self._lines:
            lines = [self._lines.popleft() for _ in range(min(_BATCH, len(self._lines)))]
            try:
                await runs.append_logs(self._database, lines)
            except Unavailable:
                self._lines.extendleft(reversed(lines))
                raise

    def _carry(self, work: Coroutine[Any, Any, _Answer]) -> Future[_Answer]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)
