"""Queues, pauses and workers as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from duly.domain.fields import Duration, Moment
from duly.wire.limits import Scoped
from duly.wire.pages import Items
from duly.wire.schema.shapes import Reason, RequestModel, ResponseModel


class Queue(ResponseModel, frozen=True):
    """The backlog of a queue, its workers, and whether it is paused."""

    name: str
    ready: Annotated[int, Meta(description="Ready runs, counted up to 100,000.")]
    oldest_age_seconds: Annotated[float, Meta(description="Age of the oldest of them since it was due.")]
    workers: int
    slots: int
    is_paused: bool
    age_limit_seconds: Annotated[float, Meta(description="Age of the oldest due run above which jobs are refused.")]
    is_overloaded: Annotated[
        bool,
        Meta(
            description="The caller's oldest due run is older than that: one-shots of priority 7 and above are refused."
        ),
    ]
    desired_workers: Annotated[
        int,
        Meta(
            description="Number of workers that keep up with it, for all tenants: from recent throughput, backlog and the fires"
            " of the next 15 minutes."
        ),
    ]
    upcoming: Annotated[
        list[int],
        Meta(description="Known runs of all tenants due in each of the next 15 minutes."),
    ]
    # Always there; of an older server they are not.
    pauses: Annotated[list[Pause], Meta(description="Pauses that affect it.")] = msgspec.field(default_factory=list)
    overloads: Annotated[list[QueueOverload], Meta(description="Tenants that are overloaded in it.")] = msgspec.field(
        default_factory=list
    )
    unroutable: Annotated[list[UnknownHandler], Meta(description="Unroutable runs by handler; operator only.")] = (
        msgspec.field(default_factory=list)
    )


class QueueOverload(ResponseModel, frozen=True):
    """A tenant whose oldest due run in a queue is older than its limit."""

    tenant: int
    age_seconds: float
    age_limit_seconds: float


class UnknownHandler(ResponseModel, frozen=True):
    """A handler that no live worker has, and how many runs wait for one."""

    handler: str
    runs: int


class QueueQuery(RequestModel, frozen=True):
    """The runs to count: the caller's own, or, for the operator, everyone's."""

    everyone: bool = False


class QueueChange(RequestModel, frozen=True):
    """Settings of a queue; null restores the default."""

    age_limit: Annotated[
        Duration | None, Meta(description="Age of the oldest due run above which jobs are refused: PT1S to P1D.")
    ]


class QueueChanged(ResponseModel, frozen=True):
    """The settings of a queue after the change."""

    name: str
    age_limit_seconds: float


class QueueList(Items[Queue], frozen=True):
    """Every queue that has work or a worker, or is paused by name."""


class ScopedPause(Scoped, frozen=True):
    """The scope to pause: a queue, a tenant, or with `all` everything. An admin of a tenant pauses within that tenant."""

    reason: Reason = "paused on request"


class ScopedResume(Scoped, frozen=True):
    """The scope to resume: the same that was paused."""


class QueuePause(RequestModel, frozen=True):
    """The reason, and the scope: the caller's own runs, or, for the operator, everyone's."""

    reason: Reason = "paused on request"
    everyone: bool = False


class QueueResume(RequestModel, frozen=True):
    """The scope: the caller's own runs, or, for the operator, everyone's."""

    everyone: bool = False


class Pause(ResponseModel, frozen=True):
    """A pause; without a tenant and a queue, of everything."""

    tenant: int | None
    queue: str | None
    reason: str
    paused_by: str
    paused_at: Moment


class PauseList(Items[Pause], frozen=True):
    """All pauses."""


class PauseChange(ResponseModel, frozen=True):
    """The result, and the pauses of the scope."""

    status: Literal["paused", "already", "resumed", "not_paused"]
    remaining: list[Pause]


class Worker(ResponseModel, frozen=True):
    """A live worker."""

    worker_id: UUID
    name: str
    version: str
    tenant: Annotated[int | None, Meta(description="Tenant that it serves; null: all.")]
    queues: list[str]
    weights: Annotated[list[int], Meta(description="Weights of its queues, in order; none: all the same.")]
    handlers: list[str]
    slots: int
    pools: Annotated[dict[str, int], Meta(description="Slots by kind; those of functions under an empty name.")]
    started_at: Moment
    lease_seconds_left: float
    held_runs: Annotated[int, Meta(description="Runs that it holds, counted up to 10,000.")]
    is_draining: Annotated[bool, Meta(description="It claims no more runs and finishes those it has.")]
    stalled_at: Annotated[
        Moment | None, Meta(description="Time since which a handler has blocked it; null: not stalled.")
    ]
    stalled_in: Annotated[list[str], Meta(description="Handlers that block it, where known.")]


class HeldRun(ResponseModel, frozen=True):
    """A run that a worker holds."""

    run_id: UUID
    job_id: UUID
    tenant: int
    state: Annotated[Literal["ready", "running"], Meta(description="ready: claimed ahead of its due time.")]
    queue: str
    handler: str
    attempt: int
    scheduled_at: Moment
    due_at: Moment
    claimed_at: Moment


class HeldRuns(Items[HeldRun], frozen=True):
    """The runs that a worker holds, the first due in front; 200 at most."""

    is_complete: bool


class Draining(ResponseModel, frozen=True):
    """Whether a worker claims runs, and how many it still holds."""

    worker_id: UUID
    is_draining: bool
    held_runs: int


class HostProcess(ResponseModel, frozen=True):
    """A live worker or scheduler of a host, and what it holds: runs, counted up to 1,000, or shards."""

    role: Literal["worker", "scheduler"]
    name: str
    held: int


class HostDraining(ResponseModel, frozen=True):
    """Whether a host takes work, and what its processes still hold. Drained and empty, its processes can be stopped."""

    host: str
    is_draining: bool
    is_empty: bool
    processes: list[HostProcess]


class WorkerList(Items[Worker], frozen=True):
    """Every live worker."""
