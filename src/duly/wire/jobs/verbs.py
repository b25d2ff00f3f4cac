"""Actions on a job, and their responses, as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, field

from duly.domain.fields import Moment, Payload
from duly.wire.pages import Page, PageQuery
from duly.wire.runs import Cancelling
from duly.wire.schema.shapes import Reason, RequestModel, ResponseModel, check_reach

JobState = Literal["active", "paused", "completed", "cancelled"]
Running = Annotated[
    Literal["keep", "stop"], Meta(description="keep: started runs continue. stop: they are asked to stop.")
]


class Deletion(RequestModel, frozen=True):
    """The treatment of runs that have started."""

    running: Running = "keep"
    purge: Annotated[
        bool,
        Meta(description="Delete the definition, its versions and, once no run is active, its history."),
    ] = False


class Deleted(ResponseModel, frozen=True):
    """The result of ending a job, and its status: the job's, or for a one-shot the state of its run.

    cancelled: nothing of it will start any more. requested: its worker has been asked. too_late: it had ended, or, for
    a one-shot whose run is to be kept, it has started. `stopping`: how many started runs were asked to end.
    `may_start`: runs whose worker did not answer, so that they have started or may still start.
    """

    job_id: UUID
    status: Cancelling
    state: str
    stopping: int
    may_start: tuple[UUID, ...] = ()
    purged: Annotated[
        bool, Meta(description="The definition is deleted; the history follows once no run is active.")
    ] = False


class PauseRequest(RequestModel, frozen=True):
    """The reason of a pause."""

    reason: Reason = "paused on request"


class ResumeRequest(RequestModel, frozen=True):
    """The treatment of occurrences of the meantime: skipped, or with `catch_up` treated as missed."""

    catch_up: bool = False


class JobStatus(ResponseModel, frozen=True):
    """The status of a job; `changed` is false when it was so before.

    `may_start` names runs of a paused job that may still start: due before the pause and waiting, or held by a worker
    that did not answer.
    """

    job_id: UUID
    status: JobState
    changed: bool
    may_start: tuple[UUID, ...] = ()


class SkippedNext(ResponseModel, frozen=True):
    """The occurrence that is skipped."""

    job_id: UUID
    scheduled_at: Moment


class TriggerRequest(RequestModel, frozen=True):
    """A request to run a job now. `payload` replaces the job's own for this run; `allow_overlap` ignores its overlap policy."""

    payload: Payload | None = None
    allow_overlap: bool = False


class TriggeredRun(ResponseModel, frozen=True):
    """The run that was created, and its state."""

    run_id: UUID
    job_id: UUID
    state: Literal["ready", "blocked", "skipped_overlap", "replayed"]


class BackfillRequest(RequestModel, frozen=True):
    """A request to create the occurrences of [from, to) again, `rate` a second, below everything on time."""

    from_: Annotated[Moment, Meta(description="Start of the range.")] = field(name="from")
    to: Annotated[Moment, Meta(description="End of the range, exclusive.")]
    rate: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    overlap: Annotated[
        Literal["queue", "allow"], Meta(description="queue: one after the other. allow: in parallel.")
    ] = "queue"
    dry_run: bool = False
    confirm: bool = False

    def __post_init__(self) -> None:
        check_reach(**{"from": self.from_, "to": self.to})


class BackfillCreated(ResponseModel, frozen=True):
    """The number of occurrences, and the first of them; without an id nothing was created."""

    backfill_id: UUID | None
    job_id: UUID
    count: int
    first: list[Moment]
    is_partial: Annotated[
        bool,
        Meta(description="At least this many: counting stopped at its time limit."),
    ]


class BackfillStatus(ResponseModel, frozen=True):
    """The progress of a backfill."""

    backfill_id: UUID
    job_id: UUID
    state: Literal["active", "done", "cancelled"]
    origin: str
    from_at: Moment
    to_at: Moment
    rate: float
    total: int
    created: int
    requested_at: Moment


class BackfillQuery(PageQuery, frozen=True, kw_only=True):
    """The job of the backfills; without one, all."""

    job_id: UUID | None = None


class BackfillList(Page[BackfillStatus], frozen=True):
    """A page of backfills, the last requested first."""


class BackfillCancelled(ResponseModel, frozen=True):
    """The number of its runs that had not started and were removed."""

    backfill_id: UUID
    recalled: int
