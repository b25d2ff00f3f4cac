"""What is known of a run or a job at a moment, and what is said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.diagnosis.explain.codes import HOLDING, Code
from duly.domain.diagnosis.explain.words import moment_text
from duly.domain.limits.overload import Overload
from duly.domain.limits.pause import Hold
from duly.domain.limits.scaling import Pace, slots_for

POSITION_MAX = 10_000  # What waits before a run is counted up to this.


def position_text(before: int) -> str:
    """Write how many wait before a run, as far as they were counted."""
    return f"{POSITION_MAX} or more" if before >= POSITION_MAX else str(before)


class Reason(msgspec.Struct, frozen=True):
    """One thing that is so: a code, a sentence, and its numbers. What holds back says what frees it, and until when it will."""

    code: Code
    text: str
    facts: dict[str, Any] = {}
    frees: str | None = None
    probable_start_at: datetime | None = None


def holding_of(reasons: Sequence[Reason]) -> Reason | None:
    """Give the first reason that holds something back; None when nothing does."""
    found = next((reason for reason in reasons if reason.code in HOLDING), None)
    assert found is None or found.frees is not None, found
    return found


class Stall(msgspec.Struct, frozen=True):
    """Since when a worker starts nothing, and the handlers that hold it; to whom it is not to be named, they are not either."""

    since: datetime
    handlers: Sequence[str] = ()

    def __str__(self) -> str:
        held_by = f": {', '.join(self.handlers)} blocks it" if self.handlers else ""
        return f"has been stalled since {moment_text(self.since)}{held_by}"


class Serving(msgspec.Struct, frozen=True):
    """A live worker, as far as it matters here; to whom it is not to be named, it has no name, nor have its handlers."""

    name: str | None
    queues: Sequence[str]
    handlers: Sequence[str]
    slots: int
    pools: Mapping[str, int] = {}
    stall: Stall | None = None

    def slots_for(self, handler: str) -> int:
        """Say how many runs of a handler it runs at once."""
        return slots_for(self.slots, self.pools, handler)


class Gate(msgspec.Struct, frozen=True):
    """What a run waits at: how many may be inside, how many are, and some of those; how many wait before it.

    Where the order is strict, `next_run` is the one that goes before all others.
    """

    name: str
    places: int
    active: int
    holders: Sequence[UUID] = ()
    before: int = 0
    is_fifo: bool = False
    next_run: UUID | None = None


class Parents(msgspec.Struct, frozen=True):
    """What a run waits for in a workflow, or as one that follows other jobs: those that have not ended."""

    names: Sequence[str]
    workflow_id: UUID | None = None
    is_paused: bool = False


class Turn(msgspec.Struct, frozen=True):
    """A rate at which a run waits for its turn: how many of the key come before it, and from when on it may go."""

    key: str
    per_second: float
    burst: int
    before: int = 0
    turn_at: datetime | None = None


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """The destination that a run waits for: how it is, when it is tried, and what it may be sent."""

    origin: str
    state: str
    tried_at: datetime | None = None
    places: int = 1
    in_flight: int = 0
    rate: float | None = None
    ramp_rate: float | None = None


class Passed(msgspec.Struct, frozen=True):
    """What a run had to pass besides its queue: a key's places or line, a rate, a destination. When it did is not kept."""

    key: str | None = None
    is_fifo: bool = False
    rate: str | None = None
    has_destination: bool = False


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run or a recurring job alike."""

    now: datetime
    state: str
    queue: str
    handler: str
    holds: Sequence[Hold] = ()  # those that cover it, or its runs
    workers: Sequence[Serving] = ()
    schedulers: int = 1


class RunFacts(Facts, frozen=True, kw_only=True):
    """What is known of a run at a moment."""

    attempt: int
    max_attempts: int | None = None  # unknown where it is left to the handler
    scheduled_at: datetime
    due_at: datetime
    reason: str | None = None
    worker: str | None = None
    worker_is_live: bool = True
    stall: Stall | None = None  # of its worker
    claimed_at: datetime | None = None
    deadline_at: datetime | None = None  # by when its receiver, which has taken it on, has to say what it came to
    started_at: datetime | None = None
    finished_at: datetime | None = None
    last_error: str | None = None
    replays: int = 0
    before: int = 0  # how many of its tenant's in its queue come first, up to POSITION_MAX
    pace: Pace = Pace()  # what its queue did lately
    gate: Gate | None = None
    passed: Passed = Passed()
    parents: Parents | None = None
    turn: Turn | None = None
    destination: Awaited | None = None


class Excluded(msgspec.Struct, frozen=True):
    """An occurrence that a job would have had next, and the calendars that exclude it."""

    scheduled_at: datetime
    calendars: Sequence[str]


class JobFacts(Facts, frozen=True, kw_only=True):
    """What is known of a recurring job at a moment. `called`: how a command names it."""

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
    last: Sequence[Mapping[str, Any]] = ()  # its last runs, the newest first
