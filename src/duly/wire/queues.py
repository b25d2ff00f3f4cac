"""Queues, holds and workers as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta

from duly.domain.job import REASON_CHARACTERS_MAX
from duly.wire.keys import TenantNumber
from duly.wire.shapes import PRINTABLE, Asked, Moment, Name, Told

Reason = Annotated[str, Meta(min_length=1, max_length=REASON_CHARACTERS_MAX, extra_json_schema=PRINTABLE)]


class Queue(Told, frozen=True):
    """What waits in a queue, who serves it, and whether it is held."""

    name: str
    ready: Annotated[int, Meta(description="Runs that may be claimed, counted up to 100,000.")]
    oldest_age_seconds: Annotated[float, Meta(description="How long the oldest of them has been due.")]
    workers: int
    slots: int
    is_held: bool


class QueueList(Told, frozen=True):
    """Every queue that has work or a worker, or is held by its name."""

    items: list[Queue]


class HoldRequest(Asked, frozen=True):
    """What is to be paused: a queue, a tenant, or with `all` everything. An admin of a tenant pauses within that tenant."""

    all: bool = False
    queue: Name | None = None
    tenant: TenantNumber | None = None
    reason: Reason = "paused on request"


class LiftRequest(Asked, frozen=True):
    """What is to go on: the same that was paused."""

    all: bool = False
    queue: Name | None = None
    tenant: TenantNumber | None = None


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


class HoldList(Told, frozen=True):
    """All that is held."""

    items: list[Hold]


class HoldChange(Told, frozen=True):
    """What became of it, and what is held now of what was named."""

    status: Literal["paused", "already", "resumed", "not_paused"]
    standing: list[Hold]


class Worker(Told, frozen=True):
    """A worker that lives."""

    worker_id: UUID
    name: str
    version: str
    tenant: Annotated[int | None, Meta(description="The tenant it serves; null: all of them.")]
    queues: list[str]
    weights: Annotated[list[int], Meta(description="Of its queues, in their order; none: all weigh the same.")]
    handlers: list[str]
    slots: int
    started_at: Moment
    lease_seconds_left: float


class WorkerList(Told, frozen=True):
    """Every worker that lives."""

    items: list[Worker]
