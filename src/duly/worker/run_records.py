"""Records of active runs: log lines, progress and checkpoints.

Handlers live on other threads; each write is carried over to the engine's loop, which owns the connections.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from duly.clock import moment_of
from duly.domain.redaction import Redactor
from duly.domain.runs.progress import Progress
from duly.domain.runs.run import Run
from duly.moves.redact import redactor_of
from duly.store.boxes import runs
from duly.store.boxes.runs import LogLine
from duly.store.connection.database import Database, Unavailable
from duly.store.connection.refusals import BAD_ROW
from duly.worker.context import plain_fields, plain_text
from duly.worker.execute.child import LOG_BYTES_MAX, ChildMessage

_LINES_MAX = 50_000
_BATCH = 1_000
_RETRY_SECONDS = 0.2
_UNSTORABLE = "(a line that could not be stored)"
_Answer = TypeVar("_Answer")
_Row = TypeVar("_Row")
_Reported: TypeAlias = tuple[UUID, int, Progress]  # of a run, under its fence


class WorkerServices:
    """Serves the handlers of one life of a worker. Lines go over `settling`: outcomes wait for them."""

    def __init__(
        self, database: Database, worker_id: UUID, is_safe: Callable[[], bool], *, settling: Database | None = None
    ) -> None:
        self._database = database
        self._settling = settling or database
        self._worker_id = worker_id
        self._is_safe = is_safe
        self._loop = asyncio.get_running_loop()
        self._lines: deque[LogLine] = deque(maxlen=_LINES_MAX)
        self._numbers: Counter[tuple[UUID, int]] = Counter()
        self._bytes: Counter[tuple[UUID, int]] = Counter()
        self._dropped: Counter[tuple[UUID, int]] = Counter()
        self._progress: dict[tuple[UUID, int], Progress] = {}  # reported and not yet written, by run and fence
        self._showing: dict[tuple[UUID, int], Progress] = {}  # being written
        self._written: dict[tuple[UUID, int], int] = {}  # the last written line of an attempt
        self._unsure: dict[tuple[UUID, int], int] = {}  # the last line that may be written already: the answer was lost
        self._redactors: dict[tuple[UUID, int], Redactor] = {}
        self._writing = asyncio.Lock()
        self._progress_flush = asyncio.Lock()

    def log(self, run: Run, level: str, message: str, fields: dict[str, Any]) -> None:
        """Keep a line for the next flush, up to a cap for each attempt; the rest is counted."""
        name = (run.run_id, run.attempt)
        text, values = plain_text(message), plain_fields(fields) if fields else None
        if (redactor := self._redactor_of(run)) is not None:
            text, values = redactor.text(text), values and redactor.value(values)
        more = None if values is None else msgspec.json.encode(values).decode()
        self._bytes[name] += len(text) + len(more or "")
        if self._bytes[name] > LOG_BYTES_MAX:
            self._dropped[name] += 1
            return
        self._keep(run, level, text, more)

    def _keep(self, run: Run, level: str, text: str, more: str | None) -> None:
        name = (run.run_id, run.attempt)
        self._numbers[name] += 1
        at = moment_of(self._database.clock.now())
        self._lines.append(LogLine(run.run_id, run.fence, run.attempt, self._numbers[name], at, level, text, more))

    async def checkpoint(self, run: Run, body: str) -> bool:
        """Save a checkpoint. False: the lease is lost."""
        return await asyncio.wrap_future(self._carry(self.save_checkpoint(run, body)))

    def checkpoint_sync(self, run: Run, body: str) -> bool:
        """Save a checkpoint from a thread."""
        return self._carry(self.save_checkpoint(run, body)).result()

    def progress(self, run: Run, progress: Progress) -> None:
        """Record the progress of a run, for the next flush: a handler may report in a tight loop."""
        if progress.note is not None and (redactor := self._redactor_of(run)) is not None:
            progress = msgspec.structs.replace(progress, note=redactor.text(progress.note))
        self._progress[run.run_id, run.fence] = progress

    def _redactor_of(self, run: Run) -> Redactor | None:
        """Return the redaction of a run; None where it has no rules."""
        if not run.metadata.redact:
            return None
        name = (run.run_id, run.fence)
        if name not in self._redactors:
            self._redactors[name] = redactor_of(run)
        return self._redactors[name]

    async def save_checkpoint(self, run: Run, body: str) -> bool:
        """Write a checkpoint, on the engine's loop; while the database does not answer and the lease is valid, try again."""
        while True:
            try:
                return await runs.save_checkpoint(self._database, run.run_id, run.fence, self._worker_id, body)
            except Unavailable:
                if not self._is_safe():
                    return False
            await self._database.clock.sleep(_RETRY_SECONDS)

    @property
    def owes_any(self) -> bool:
        """Return whether any run has progress that is not written yet."""
        return bool(self._progress or self._showing)

    def owes_progress(self, run: Run) -> bool:
        """Return whether a run has progress that is not written yet."""
        name = (run.run_id, run.fence)
        return name in self._progress or name in self._showing

    async def flush_progress(self) -> None:
        """Write the progress of runs, all in one statement; a failure is not worth reporting."""
        async with self._progress_flush:  # of two flushes the second is done when both are
            # Handlers report more meanwhile, on their threads: the mapping stays, and each is taken out of it in one
            # step.
            self._showing = {name: self._progress.pop(name) for name in list(self._progress)}
            reported = [(run_id, fence, progress) for (run_id, fence), progress in self._showing.items()]
            try:
                if reported:
                    await _by_halves(reported, self._show, self._leave_out)
            except Unavailable:
                pass
            finally:
                self._showing = {}

    async def _show(self, reported: Sequence[_Reported]) -> None:
        await runs.save_progresses(self._database, self._worker_id, reported)

    async def _leave_out(self, reported: _Reported) -> None:
        """Drop progress that cannot be stored."""

    def on_message(self, run: Run, message: ChildMessage) -> asyncio.Future[bool] | None:
        """Serve a handler in a child process; it waits for each write, so that they are in order."""
        match message.kind:
            case "log":
                self.log(run, message.level, message.text or "", message.fields or {})
            case "checkpoint":
                return asyncio.ensure_future(self.save_checkpoint(run, message.text or "null"))
            case "progress" if message.progress is not None:
                self.progress(run, message.progress)
            case "dropped":
                self._dropped[run.run_id, run.attempt] += message.count
        return None

    def end(self, runs: Iterable[Run]) -> None:
        """Say in a last line of each run how much of its log was dropped."""
        if not self._dropped:
            return
        for run in runs:
            if dropped := self._dropped.pop((run.run_id, run.attempt), 0):
                kept = f"{LOG_BYTES_MAX // 1024} KiB of an attempt's log are kept; what came after was dropped"
                self._keep(run, "warning", kept, msgspec.json.encode({"lines": dropped}).decode())

    def forget(self, runs: Iterable[Run]) -> None:
        """Drop the counters of attempts that have ended."""
        if not (self._numbers or self._bytes or self._dropped or self._progress or self._redactors):
            return  # no active run has logged anything
        for run in runs:
            for counted in (self._numbers, self._bytes, self._dropped, self._written, self._unsure):
                counted.pop((run.run_id, run.attempt), None)
            self._progress.pop((run.run_id, run.fence), None)
            self._redactors.pop((run.run_id, run.fence), None)

    async def flush(self) -> None:
        """Write the gathered lines; those that may have been written are sent again, and stored once."""
        while self._lines:
            async with self._writing:  # one batch at a time, so that waiters wait for no more than theirs
                await self._write(self._take(min(_BATCH, len(self._lines))))

    async def flush_ended(self, ended: Sequence[Run]) -> None:
        """Write the lines of attempts that have ended; when this returns, each has its last line."""
        if not self._numbers:
            return  # nothing was logged
        async with self._writing:
            names = {name for run in ended if self._owes_lines(name := (run.run_id, run.attempt))}
            if not names:
                return
            lines: list[LogLine] = []
            others: list[LogLine] = []
            for line in self._take(len(self._lines)):
                (lines if (line.run_id, line.attempt) in names else others).append(line)
            self._lines.extendleft(reversed(others))
            await self._write(lines)

    def _take(self, number: int) -> list[LogLine]:
        """Take the first lines out, each in one step: handlers log more meanwhile, on their threads."""
        return [self._lines.popleft() for _ in range(number)]

    def _owes_lines(self, name: tuple[UUID, int]) -> bool:
        return self._numbers.get(name, 0) > self._written.get(name, 0)

    async def _write(self, lines: list[LogLine]) -> None:
        for start in range(0, len(lines), _BATCH):
            batch = lines[start : start + _BATCH]
            last = {(line.run_id, line.attempt): line.number for line in batch}
            try:
                await _by_halves(batch, self._append, self._append_bare)
            except BaseException:
                self._lines.extendleft(reversed(lines[start:]))
                self._unsure |= last
                raise
            self._written |= last

    async def _append(self, lines: Sequence[LogLine]) -> None:
        may_repeat = bool(self._unsure) and any(
            line.number <= self._unsure.get((line.run_id, line.attempt), 0) for line in lines
        )
        await runs.append_logs(self._settling, self._worker_id, lines, may_repeat=may_repeat)

    async def _append_bare(self, line: LogLine) -> None:
        """Write a placeholder for a line that cannot be stored."""
        bare = msgspec.structs.replace(line, level="warning", message=_UNSTORABLE, fields=None)
        with suppress(*BAD_ROW):
            await self._append([bare])

    def _carry(self, work: Coroutine[Any, Any, _Answer]) -> Future[_Answer]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


async def _by_halves(
    rows: Sequence[_Row],
    write: Callable[[Sequence[_Row]], Awaitable[None]],
    write_bad: Callable[[_Row], Awaitable[None]],
) -> None:
    """Write rows; on a data error, halve them down to the bad one, which is written otherwise."""
    try:
        await write(rows)
    except BAD_ROW:
        if len(rows) == 1:
            await write_bad(rows[0])
            return
        middle = len(rows) // 2
        await _by_halves(rows[:middle], write, write_bad)
        await _by_halves(rows[middle:], write, write_bad)
