"""Queues, holds and workers as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from duly.domain.fields import Duration, Moment
from duly.wire.limits import Scoped
from duly.wire.pages import Items
from duly.wire.schema.shapes import Asked, Reason, Told


class Queue(Told, frozen=True):
    """What waits in a queue, who serves it, and whether it is held."""

    name: str
    ready: Annotated[int, Meta(description="Ready runs, counted up to 100,000.")]
    oldest_age_seconds: Annotated[float, Meta(description="Age of the oldest of them since it was due.")]
    workers: int
    slots: int
    is_held: bool
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
    coming: Annotated[
        list[int],
        Meta(description="Known runs of all tenants due in each of the next 15 minutes."),
    ]
    # Always there; of an older server they are not.
    holds: Annotated[list[Hold], Meta(description="Pauses that affect it.")] = msgspec.field(default_factory=list)
    overloads: Annotated[list[QueueOverload], Meta(description="Tenants that are overloaded in it.")] = msgspec.field(
        default_factory=list
    )
    unknown_handlers: Annotated[
        list[UnknownHandler], Meta(description="Unroutable runs by handler; operator only.")
    ] = msgspec.field(default_factory=list)


class QueueOverload(Told, frozen=True):
    """A tenant whose oldest due run in a queue is older than it may be."""

    tenant: int
    age_seconds: float
    age_limit_seconds: float


class UnknownHandler(Told, frozen=True):
    """A handler that no live worker has, and how many runs wait for one."""

    handler: str
    runs: int


class QueueQuery(Asked, frozen=True):
    """Whose runs are counted: the caller's own, or, for the operator, everyone's."""

    everyone: bool = False


class QueueChange(Asked, frozen=True):
    """How a queue is to be; null leaves it to the default."""

    age_limit: Annotated[
        Duration | None, Meta(description="Age of the oldest due run above which jobs are refused: PT1S to P1D.")
    ]


class QueueChanged(Told, frozen=True):
    """How a queue is by now."""

    name: str
    age_limit_seconds: float


class QueueList(Items[Queue], frozen=True):
    """Every queue that has work or a worker, or is held by its name."""


class HoldRequest(Scoped, frozen=True):
    """What is to be paused: a queue, a tenant, or with `all` everything. An admin of a tenant pauses within that tenant."""

    reason: Reason = "paused on request"


class LiftRequest(Scoped, frozen=True):
    """What is to go on: the same that was paused."""


class QueuePause(Asked, frozen=True):
    """Why, and for whom: the caller's own runs, or, for the operator, everyone's."""

    reason: Reason = "paused on request"
    everyone: bool = False


class QueueResume(Asked, frozen=True):
    """For whom: the caller's own runs, or, for the operator, everyone's."""

    everyone: bool = False


class Hold(Told, frozen=True):
    """Something that nobody may start; without a tenant and a queue, everything."""

    tenant: int | None
    queue: str | None
    reason: str
    held_by: str
    held_at: Moment


class HoldList(Items[Hold], frozen=True):
    """All that is held."""


class HoldChange(Told, frozen=True):
    """What became of it, and what is held now of what was named."""

    status: Literal["paused", "already", "resumed", "not_paused"]
    standing: list[Hold]


class Worker(Told, frozen=True):
    """A worker that lives."""

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
    held: Annotated[int, Meta(description="Runs that it holds, counted up to 10,000.")]
    is_draining: Annotated[bool, Meta(description="It claims no more runs and finishes those it has.")]
    stalled_at: Annotated[
        Moment | None, Meta(description="Time since which a handler has blocked it; null: not stalled.")
    ]
    stalled_in: Annotated[list[str], Meta(description="Handlers that block it, where known.")]


class HeldRun(Told, frozen=True):
    """A run in a worker's hands."""

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
    """What a worker holds, what was due first in front; 200 of it at most."""

    is_complete: bool


class Draining(Told, frozen=True):
    """Whether a worker takes runs by now, and how many it still holds."""

    worker_id: UUID
    is_draining: bool
    held: int


class WorkerList(Items[Worker], frozen=True):
    """Every worker that lives."""
