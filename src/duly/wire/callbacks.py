"""Reports of webhook receivers, as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta

from duly.domain.fields import Duration, Moment
from duly.wire.schema.shapes import RequestModel, ResponseModel, RetryAfter


class CallbackOutcome(RequestModel, frozen=True):
    """The outcome of a webhook that was answered 202.

    `result` is of a success; `reason`, `retry`, `retry_after` of a failure.
    """

    outcome: Literal["succeeded", "failed"]
    result: Any = None
    reason: Annotated[str, Meta(max_length=2_000, description="Reason of the failure, for people.")] | None = None
    retry: Annotated[bool, Meta(description="Retry the run if attempts are left.")] = True
    retry_after: RetryAfter | None = None


class CallbackSettled(ResponseModel, frozen=True):
    """The state of the run after the report."""

    run_id: UUID
    attempt: int
    state: str


class CallbackExtension(RequestModel, frozen=True):
    """The extra time that the receiver needs, counted from now; at most 30 days."""

    within: Duration


class CallbackExtended(ResponseModel, frozen=True):
    """The new deadline of the receiver."""

    run_id: UUID
    deadline_at: Moment


class CallbackProgress(RequestModel, frozen=True):
    """The progress of a run: `done` of `total`, which may be unknown."""

    done: Annotated[float, Meta(ge=0)]
    total: Annotated[float, Meta(ge=0)] | None = None
    note: Annotated[str, Meta(max_length=1_000)] | None = None
