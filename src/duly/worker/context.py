"""The run as its handler sees it, and the signals that a handler may raise.

A context does no I/O of its own: the worker does. Every write names the run and its fence, so that a worker that slept
past its lease writes nothing.
"""

from __future__ import annotations

from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

import msgspec

from duly.clock import moment_of
from duly.domain.duration import Duration, parse
from duly.domain.errors import DulyError, InvalidOption
from duly.domain.runs import payload as payloads
from duly.domain.runs.progress import Progress, progress_of
from duly.domain.runs.run import Run
from duly.log import add_ids

MESSAGE_CHARACTERS_MAX = 8_192
FIELDS_BYTES_MAX = 262_144  # of a line, in all
_FIELD_NAME_CHARACTERS_MAX = 200


class RunServices(Protocol):
    """The worker's services for the runs it executes."""

    def log(self, run: Run, level: str, message: str, fields: dict[str, Any]) -> None:
        """Append a log line; from any thread, without waiting."""
        ...

    async def checkpoint(self, run: Run, body: str) -> bool:
        """Save a checkpoint. False: the lease is lost."""
        ...

    def progress(self, run: Run, progress: Progress) -> None:
        """Report the run's progress; from any thread, without waiting."""
        ...

    def checkpoint_sync(self, run: Run, body: str) -> bool:
        """Save a checkpoint from a thread. False: the lease is lost."""
        ...


class Snooze(Exception):
    """Raised by a handler to be called again after a delay of at least a tenth of a second; this is no failure."""

    def __init__(self, delay: Duration) -> None:
        self.delay: timedelta = parse(delay, "snooze")
        if self.delay < timedelta():
            raise InvalidOption(f"snooze {delay!r} is negative; it counts from now and is 0 or more")
        super().__init__(f"snoozed for {self.delay}")


class NonRetryable(Exception):
    """Raised by a handler when another attempt would not help: the run goes to the dead letters."""

    def __init__(self, reason: str = "not retryable") -> None:
        self.reason = reason
        super().__init__(reason)


class Cancelled(DulyError):
    """Raised by `raise_if_cancelled` when the run was asked to stop."""


class LeaseLost(DulyError):
    """This worker has lost the lease on the run: nothing it does from here on counts."""


_CUT = "…"
# The run of the current code; each task and each thread has its own.
current: ContextVar[RunContext | None] = ContextVar("duly_run", default=None)


def _ids() -> dict[str, Any]:
    run = current.get()
    return {} if run is None else run.ids


add_ids(_ids)


class RunLog:
    """The run's log."""

    __slots__ = ("_run", "_services")

    def __init__(self, run: Run, services: RunServices) -> None:
        self._run = run
        self._services = services

    def debug(self, message: str, **fields: Any) -> None:
        """Log a detail for developers."""
        self._services.log(self._run, "debug", message, fields)

    def info(self, message: str, **fields: Any) -> None:
        """Log an event."""
        self._services.log(self._run, "info", message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        """Log a problem that was handled."""
        self._services.log(self._run, "warning", message, fields)

    def error(self, message: str, **fields: Any) -> None:
        """Log an error."""
        self._services.log(self._run, "error", message, fields)


class RunContext:
    """The run as its handler sees it; users know it as `duly.Run`."""

    __slots__ = ("_cancelled", "_run", "_saved", "_services", "_started")

    def __init__(
        self, run: Run, services: RunServices, *, started: float | None = None, saved: str | None = None
    ) -> None:
        self._run = run
        self._services = services
        self._started = started  # seconds since 1970
        self._saved = saved
        self._cancelled = False

    @property
    def id(self) -> UUID:
        """The run's id, the same for every attempt: the key to deduplicate effects with."""
        return self._run.run_id

    @property
    def job_id(self) -> UUID:
        """The job of this run; for a one-shot, the run's own id."""
        return self._run.job_id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._run.attempt

    @property
    def fence(self) -> int:
        """The fence, which rises with every lease of the run; a store that remembers the highest refuses a stale worker."""
        return self._run.fence

    @property
    def scheduled_at(self) -> datetime:
        """The moment this run is for."""
        return self._run.scheduled_at

    @property
    def previous_scheduled_at(self) -> datetime | None:
        """The moment of the schedule's previous run."""
        return self._run.previous_scheduled_at

    @property
    def missed(self) -> int:
        """Return how many missed occurrences this run makes up for, including itself; 0 when it is on time."""
        return self._run.history.missed

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags it was submitted with."""
        return self._run.metadata.tags

    @property
    def request_id(self) -> str | None:
        """The id of the request that created it, if there was one."""
        return self._run.metadata.request_id

    @property
    def traceparent(self) -> str | None:
        """The W3C Trace Context `traceparent` of the request that created it."""
        return self._run.metadata.traceparent

    @property
    def parent(self) -> UUID | None:
        """The run whose subtask this is; None without one."""
        return self._run.metadata.parent

    @property
    def workflow_id(self) -> UUID | None:
        """The workflow of this node; None outside of one."""
        node = self._run.metadata.node
        return None if node is None else node[0]

    @property
    def node(self) -> str | None:
        """The name of this node in its workflow; None outside of one."""
        node = self._run.metadata.node
        return None if node is None else node[1]

    @property
    def parents(self) -> dict[str, Any]:
        """The results of this node's parents, by name; without those that did not succeed."""
        return {} if self._run.parents is None else msgspec.json.decode(self._run.parents)

    @property
    def due_at(self) -> datetime:
        """The moment at which this attempt was to start."""
        return self._run.due_at

    @property
    def deadline(self) -> datetime | None:
        """The moment at which this attempt will be stopped; None without a timeout."""
        seconds = self._run.policy.timeout_seconds
        if seconds is None or self._started is None:
            return None
        return moment_of(self._started) + timedelta(seconds=seconds)

    @property
    def log(self) -> RunLog:
        """The run's log."""
        return RunLog(self._run, self._services)

    @property
    def saved(self) -> Any:
        """The last checkpoint of this run, by this or an earlier attempt; None when there is none."""
        return None if self._saved is None else msgspec.json.decode(self._saved)

    @property
    def cancelled(self) -> bool:
        """Return whether the run was asked to stop."""
        return self._cancelled

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled when the run was asked to stop."""
        if self._cancelled:
            raise Cancelled(f"run {self._run.run_id} was cancelled")

    async def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Report progress: `done` of `total`, if that is known, and a note. Raises InvalidOption.

        The last report is shown within a second, and in any case before the run ends; reports may be as frequent as you
        like.
        """
        self.progress_sync(done, total, note)

    def progress_sync(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Report progress, from a plain function. Raises InvalidOption."""
        self._services.progress(self._run, progress_of(done, total, note))

    async def checkpoint(self, value: Any) -> None:
        """Save `value` durably for the next attempt. Raises LeaseLost, InvalidPayload."""
        body = self._encode(value)
        self._keep(body, await self._services.checkpoint(self._run, body))

    def checkpoint_sync(self, value: Any) -> None:
        """Save `value` durably for the next attempt, from a plain function. Raises LeaseLost, InvalidPayload."""
        body = self._encode(value)
        self._keep(body, self._services.checkpoint_sync(self._run, body))

    # The rest is for the worker.

    @property
    def ids(self) -> dict[str, Any]:
        """The ids with which log lines name the run."""
        return self._run.ids

    def start(self, seconds: float) -> None:
        """Record when the handler was called, in seconds since 1970: its deadline counts from there."""
        self._started = seconds

    @property
    def has_started(self) -> bool:
        """Return whether the handler has been called."""
        return self._started is not None

    def mark_cancelled(self) -> None:
        """Notify the handler, from any thread, that the run was asked to stop."""
        self._cancelled = True

    def keep_line(self, level: str, message: str, fields: dict[str, Any]) -> None:
        """Append a line that something other than the handler's `log` wrote."""
        self._services.log(self._run, level, message, fields)

    @property
    def refused(self) -> str | None:
        """The reason why the handler cannot be called: the run's payload could not be built."""
        return self._run.refused

    @property
    def left_behind(self) -> bool:
        """Return whether something was saved that must go when the run is final."""
        return self._saved is not None

    def _encode(self, value: Any) -> str:
        return payloads.encode(value, f"the checkpoint of run {self._run.run_id}", payloads.CHECKPOINT_BYTES_MAX)

    def _keep(self, body: str, held: bool) -> None:
        if not held:
            raise LeaseLost(f"run {self._run.run_id}, fence {self._run.fence}: the lease was lost; stop here")
        self._saved = body


def plain_text(message: object) -> str:
    """Write a handler's log message as text that can be stored, whatever it is: a log line must never fail a handler."""
    try:
        return payloads.storable(str(message), MESSAGE_CHARACTERS_MAX)
    except Exception:  # noqa: BLE001 - what cannot be written is named by its type
        return f"(a {type(message).__name__} that cannot be written)"


def plain_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Write the fields of a log line as JSON values that can be stored, others as text; long values are cut."""
    kept: dict[str, Any] = {}
    room = FIELDS_BYTES_MAX
    for name, value in fields.items():
        if room <= 0:
            kept[_CUT] = f"{len(fields) - len(kept)} more"
            break
        named = payloads.storable(name, _FIELD_NAME_CHARACTERS_MAX)
        plain, written = _plain(value)
        kept[named] = plain if len(written) <= room else payloads.storable(written.decode(), room) + _CUT
        room -= len(named) + len(written)
    return kept


def _plain(value: Any) -> tuple[Any, bytes]:
    """Return a value as JSON, and as text."""
    try:
        plain = payloads.storable_value(msgspec.to_builtins(value))
        return plain, msgspec.json.encode(plain)
    except Exception:  # noqa: BLE001 - as above
        text = plain_text(value)
        return text, msgspec.json.encode(text)
