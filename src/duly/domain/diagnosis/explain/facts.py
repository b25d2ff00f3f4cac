"""The facts known of a run or a job at a moment, and the shape of a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.diagnosis.explain.codes import BLOCKERS, Code
from duly.domain.diagnosis.explain.words import moment_text
from duly.domain.limits.limit import Limit
from duly.domain.limits.overload import Overload
from duly.domain.limits.pause import Pause
from duly.domain.limits.scaling import Throughput, slots_for

POSITION_MAX = 10_000  # Runs ahead are counted up to this.


def position_text(before: int) -> str:
    """Write how many runs are ahead, as far as they were counted."""
    return f"{POSITION_MAX} or more" if before >= POSITION_MAX else str(before)


class Reason(msgspec.Struct, frozen=True):
    """One reason: a code, a sentence, and its numbers. A reason that holds back says what frees the run, and by when."""

    code: Code
    text: str
    facts: dict[str, Any] = {}
    resolved_by: str | None = None
    probable_start_at: datetime | None = None


def blocker_of(reasons: Sequence[Reason]) -> Reason | None:
    """Return the first reason that holds something back; None when nothing does."""
    found = next((reason for reason in reasons if reason.code in BLOCKERS), None)
    assert found is None or found.resolved_by is not None, found
    return found


class Stall(msgspec.Struct, frozen=True):
    """The start of a worker's stall, and the handlers that block it; without names for callers that may not see them."""

    since: datetime
    handlers: Sequence[str] = ()

    def __str__(self) -> str:
        blocked_by = f": {', '.join(self.handlers)} blocks it" if self.handlers else ""
        return f"has been stalled since {moment_text(self.since)}{blocked_by}"


class Serving(msgspec.Struct, frozen=True):
    """A live worker, as far as it matters here; without names for callers that may not see them."""

    name: str | None
    queues: Sequence[str]
    handlers: Sequence[str]
    slots: int
    pools: Mapping[str, int] = {}
    stall: Stall | None = None

    def slots_for(self, handler: str) -> int:
        """Return how many runs of a handler the worker runs at once."""
        return slots_for(self.slots, self.pools, handler)


class ConcurrencyKey(msgspec.Struct, frozen=True):
    """A concurrency key at which a run waits: its slots, how many are taken and by whom, and how many runs are ahead.

    With strict order, `next_run` is the one that goes first.
    """

    name: str
    slots: int
    active: int
    holders: Sequence[UUID] = ()
    before: int = 0
    is_fifo: bool = False
    next_run: UUID | None = None


class Parents(msgspec.Struct, frozen=True):
    """The unfinished runs that a run waits for, in a workflow or as dependencies."""

    names: Sequence[str]
    workflow_id: UUID | None = None
    is_paused: bool = False


class Reservation(msgspec.Struct, frozen=True):
    """A rate limit at which a run waits: how many runs of the key are ahead, and from when on it may start."""

    key: str
    per_second: float
    burst: int
    before: int = 0
    reservation_at: datetime | None = None


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """The destination that a run waits for: its circuit, its next probe, and its limits."""

    origin: str
    state: str
    probe_at: datetime | None = None
    slots: int = 1
    in_flight: int = 0
    rate: float | None = None
    ramp_rate: float | None = None


class Passed(msgspec.Struct, frozen=True):
    """The limits that a run had to pass besides its queue: a concurrency key, a rate limit, a destination.

    When is not recorded.
    """

    key: str | None = None
    is_fifo: bool = False
    rate: str | None = None
    has_destination: bool = False


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that runs and recurring jobs share."""

    now: datetime
    state: str
    queue: str
    handler: str
    pauses: Sequence[Pause] = ()  # pauses that cover it, or its runs
    workers: Sequence[Serving] = ()
    schedulers: int = 1


class RunFacts(Facts, frozen=True, kw_only=True):
    """The facts of a run at a moment."""

    attempt: int
    max_attempts: int | None = None  # unknown where it is left to the handler
    scheduled_at: datetime
    due_at: datetime
    reason: str | None = None
    worker: str | None = None
    worker_is_live: bool = True
    awaits_recovery: bool = False  # it was in flight at the backup that was restored
    stall: Stall | None = None  # of its worker
    claimed_at: datetime | None = None
    deadline_at: datetime | None = None  # by when the receiver that accepted it must report its outcome
    started_at: datetime | None = None
    finished_at: datetime | None = None
    last_error: str | None = None
    replays: int = 0
    before: int = 0  # how many runs of its tenant in its queue are ahead, up to POSITION_MAX
    throughput: Throughput = Throughput()  # recent throughput of its queue
    limits: Sequence[Limit] = ()  # those that cover it and are reached
    concurrency: ConcurrencyKey | None = None
    passed: Passed = Passed()
    parents: Parents | None = None
    reservation: Reservation | None = None
    destination: Awaited | None = None


class Excluded(msgspec.Struct, frozen=True):
    """The occurrence that a job would have had next, and the calendars that exclude it."""

    scheduled_at: datetime
    calendars: Sequence[str]


class JobFacts(Facts, frozen=True, kw_only=True):
    """The facts of a recurring job at a moment. `called`: the name by which commands refer to it."""

    called: str
    priority: int = 5
    pause_reason: str | None = None
    paused_at: datetime | None = None
    removed_at: datetime | None = None
    source: str | None = None
    next_run_at: datetime | None = None
    waits_for_event: bool = False
    excluded: Excluded | None = None
    overload: Overload | None = None  # of its queue
    failures: int = 0
    last: Sequence[Mapping[str, Any]] = ()  # its last runs, newest first
