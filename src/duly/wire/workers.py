"""HTTP workers: their requests and responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from duly.domain.fields import Duration, Moment, Name, Payload
from duly.wire.schema.shapes import RequestModel, ResponseModel, RetryAfter

SLOTS_MAX = 1_000
CLAIM_MAX = 100
SETTLE_MAX = 1_000
LINES_MAX = 1_000

Fence = Annotated[int, Meta(ge=1, le=9_223_372_036_854_775_807, description="Fence of the lease.")]
ClaimNumber = Annotated[int, Meta(ge=1, le=9_223_372_036_854_775_807)]
Answered = Annotated[int, Meta(ge=0, le=9_223_372_036_854_775_807)]


class NewWorker(RequestModel, frozen=True):
    """A worker that registers. It gets runs of these queues and handlers, and never holds more than `slots` of them."""

    name: Name
    queues: Annotated[list[Name], Meta(min_length=1, max_length=100)]
    handlers: Annotated[list[Name], Meta(min_length=1, max_length=1_000)]
    slots: Annotated[int, Meta(ge=1, le=SLOTS_MAX)] = 1
    version: Annotated[str, Meta(max_length=200)] = ""
    lease: Annotated[
        Duration, Meta(description="2 seconds to 10 minutes; time after which a silent worker loses its runs.")
    ] = "PT15S"


class RegisteredWorker(ResponseModel, frozen=True):
    """The worker's id. After `start_within_seconds` without a renewal it must start nothing more."""

    worker_id: UUID
    lease_seconds: float
    renew_every_seconds: float
    start_within_seconds: float


class ClaimRequest(RequestModel, frozen=True):
    """A claim of due runs. Claims are numbered upwards; while nothing is due, the response waits."""

    number: Annotated[ClaimNumber, Meta(description="1 for a worker's first claim, then increasing.")]
    limit: Annotated[int, Meta(ge=1, le=CLAIM_MAX)] = 1
    wait: Annotated[Duration, Meta(description="0 to 30 seconds.")] = 0


class ClaimedRun(ResponseModel, frozen=True):
    """A run to start now. `deadline` is when its timeout ends, if it is started at once.

    `suspect`: its worker died while running it before; run it in isolation. `checkpoint` is what an earlier attempt
    saved. For a node of a workflow, `parents` are the results of the nodes before it, by name.
    """

    run_id: UUID
    fence: int
    job_id: UUID
    handler: str
    queue: str
    attempt: int
    scheduled_at: Moment
    due_at: Moment
    previous_scheduled_at: Moment | None
    payload: Payload | None
    checkpoint: Any
    timeout: str | None
    deadline: Moment | None
    suspect: bool
    tags: list[str]
    request_id: str | None
    traceparent: str | None
    parent: UUID | None
    workflow_id: UUID | None = None
    node: str | None = None
    parents: dict[str, Any] | None = None


class ClaimedRuns(ResponseModel, frozen=True):
    """The runs that are now leased to the worker."""

    runs: list[ClaimedRun]


class Lease(RequestModel, frozen=True):
    """A run that the worker holds."""

    run_id: UUID
    fence: Fence


class Renewal(RequestModel, frozen=True):
    """All runs that the worker holds, including unsettled outcomes, and the last claim whose response it has.

    Other runs of those claims go back: they were never started.
    """

    leases: Annotated[list[Lease], Meta(max_length=SLOTS_MAX)]
    answered: Annotated[
        Answered, Meta(description="All claims up to this number are done; their responses are no longer needed.")
    ]


class HeldLease(ResponseModel, frozen=True):
    """One of the runs that were named."""

    run_id: UUID
    fence: int


class Renewed(ResponseModel, frozen=True):
    """The lease's duration, counted from the request. Runs to stop, and runs that are no longer the worker's."""

    until_seconds: float
    start_within_seconds: float
    cancel: list[HeldLease]
    lost: list[HeldLease]


class RunError(RequestModel, frozen=True):
    """The error of a run. Rules match its `type`, the name or path of its class, and its `bases`, the base classes."""

    type: str = ""
    bases: Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(max_length=32)] = msgspec.field(
        default_factory=list
    )
    message: str = ""
    traceback: str = ""


class RunOutcome(RequestModel, frozen=True):
    """The outcome of a run.

    `result` is of a success; `error`, `retryable` and `retry_after` of a failure; `snooze` of a snooze.
    """

    run_id: UUID
    fence: Fence
    outcome: Literal["succeeded", "failed", "timed_out", "cancelled", "snoozed"]
    started_at: Moment | None = None
    result: Any = None
    error: RunError | None = None
    retryable: bool = True
    retry_after: RetryAfter | None = None
    snooze: Duration | None = None


class Settlement(RequestModel, frozen=True):
    """Outcomes, each settled or refused by itself."""

    outcomes: Annotated[list[RunOutcome], Meta(min_length=1, max_length=SETTLE_MAX)]


class SettledRun(ResponseModel, frozen=True):
    """settled: it counts, now or from before. fenced: the lease was lost, and it changes nothing."""

    run_id: UUID
    fence: int
    status: Literal["settled", "fenced"]


class Settled(ResponseModel, frozen=True):
    """The result of each outcome, in order."""

    outcomes: list[SettledRun]


class ProgressReport(RequestModel, frozen=True):
    """The progress of a run: `done` of `total`, which may be unknown."""

    run_id: UUID
    fence: Fence
    done: Annotated[float, Meta(ge=0)] | None = None
    total: Annotated[float, Meta(ge=0)] | None = None
    note: Annotated[str, Meta(max_length=1_000)] | None = None


class Checkpoint(RequestModel, frozen=True):
    """The checkpoint for the next attempt. It replaces the one before."""

    run_id: UUID
    fence: Fence
    value: Any


class LogEntry(RequestModel, frozen=True):
    """A log line."""

    message: Annotated[str, Meta(max_length=8_192)]
    level: Literal["debug", "info", "warning", "error", "stdout", "stderr"] = "info"
    fields: dict[str, Any] = msgspec.field(default_factory=dict)


class LogEntries(RequestModel, frozen=True):
    """Log lines of the run, in order."""

    run_id: UUID
    fence: Fence
    lines: Annotated[list[LogEntry], Meta(min_length=1, max_length=LINES_MAX)]


class LogsKept(ResponseModel, frozen=True):
    """The number of lines stored; 10,000 of each attempt are."""

    kept: int


class Leaving(RequestModel, frozen=True):
    """The runs that were started and have no outcome yet: they stay leased until the worker's lease expires."""

    leases: Annotated[list[Lease], Meta(max_length=SLOTS_MAX)]


class Left(ResponseModel, frozen=True):
    """Whether the worker has deregistered; it has not while it holds something. Runs it had not started went back."""

    left: bool
    returned: list[HeldLease]
