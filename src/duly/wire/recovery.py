"""Recovery after downtime as it crosses HTTP."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from duly.domain.fields import Moment
from duly.wire.keys import TenantNumber
from duly.wire.schema.shapes import RequestModel, ResponseModel

ChoiceName = Literal["skip", "fire_once", "fire_all"]


class RecoveryRule(RequestModel, frozen=True):
    """The choice for missed fires: of one schedule, of all of a tenant, or, with neither, of all. The nearest rule counts."""

    choice: Annotated[ChoiceName, Meta(description="Skip, one run for all, or one run for each, up to 10,000.")]
    tenant: TenantNumber | None = None
    job_id: UUID | None = None


class RecoveryApproval(RequestModel, frozen=True):
    """The approval of a recovery; without a rule, each schedule's own misfire policy decides."""

    rules: Annotated[list[RecoveryRule], Meta(max_length=1_000)] = msgspec.field(default_factory=list)
    rate: Annotated[
        Annotated[float, Meta(gt=0, le=500)] | None,
        Meta(description="Runs per second in total; null: unchanged."),
    ] = None
    dry_run: Annotated[bool, Meta(description="Show the plan with these rules and this rate; change nothing.")] = False


class RecoveryItem(ResponseModel, frozen=True):
    """A schedule that missed fires, and the resulting number of runs."""

    backfill_id: UUID
    job_id: UUID
    tenant: int
    name: str | None
    queue: str
    policy: Annotated[str, Meta(description="Its own misfire policy.")]
    choice: Annotated[ChoiceName | None, Meta(description="Choice that replaces it.")]
    missed: int
    runs: Annotated[int, Meta(description="Runs to be created.")]
    created: int
    rate: Annotated[float, Meta(description="Runs per second of this schedule alone.")]
    is_waiting: Annotated[bool, Meta(description="It waits for approval, or for the schedules before it.")]


class RecoveryTenant(ResponseModel, frozen=True):
    """The missed fires of a tenant's schedules, and how many runs are still to be created."""

    tenant: int
    schedules: int
    missed: int
    runs: int


class ApprovedRule(ResponseModel, frozen=True):
    """An approved rule."""

    choice: ChoiceName
    tenant: int | None
    job_id: UUID | None


class RecoveryState(ResponseModel, frozen=True):
    """A recovery: since when no scheduler staged, the decision and its author, and its progress."""

    recovery_id: UUID
    state: Literal["open", "approved", "dismissing", "done", "dismissed"]
    down_since: Annotated[Moment | None, Meta(description="null: it took over running catch-ups.")]
    opened_at: Moment
    decided_at: Moment | None
    decided_by: str | None
    ended_at: Moment | None
    backup_at: Annotated[Moment | None, Meta(description="Backup that was restored; null: an outage.")]
    rate: Annotated[
        float | None, Meta(description="Runs per second in total; null: limited by the backfill lane only.")
    ]
    rules: list[ApprovedRule]
    schedules_waiting: int
    schedules_decided: int
    created: Annotated[int, Meta(description="Runs created so far.")]


class RunInFlight(ResponseModel, frozen=True):
    """A run that was in flight at the backup: it may have ended after it. Decided, it counts as a lost attempt."""

    run_id: UUID
    job_id: UUID
    tenant: int
    queue: str
    handler: str
    attempt: int
    scheduled_at: Moment
    worker: Annotated[str, Meta(description="Worker that held it.")]


class RecoveryPlan(ResponseModel, frozen=True):
    """Missed fires, the decision, and when it will be done; without a recovery, the catch-ups by policy."""

    recovery: Annotated[RecoveryState | None, Meta(description="The current recovery, or else the last.")]
    left: Annotated[int, Meta(description="Runs still to be created.")]
    proposed_rate: Annotated[float, Meta(description="Runs per second: half of the workers' spare capacity.")]
    finish_at: Annotated[
        Moment | None,
        Meta(description="Estimated end; null: nothing is left, or no worker serves it."),
    ]
    tenants: list[RecoveryTenant]
    items: Annotated[list[RecoveryItem], Meta(description="The largest first, at most 1,000.")]
    is_partial: Annotated[bool, Meta(description="More than 10,000 schedules; the rest were not counted.")]
    in_flight: Annotated[
        list[RunInFlight], Meta(description="Of a restored database: the runs that were in flight, at most 1,000.")
    ]
    due: Annotated[
        int, Meta(description="Of a restored database: runs that were due when it was restored, up to 10,000.")
    ]
