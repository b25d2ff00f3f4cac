"""What is asked of a job besides its definition, and what is answered."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta, field

from duly.domain.fields import Moment, Payload
from duly.wire.pages import Page, PageQuery
from duly.wire.runs import Cancelling
from duly.wire.schema.shapes import Asked, Reason, Told, check_reach

JobState = Literal["active", "paused", "completed", "cancelled"]
Running = Annotated[
    Literal["keep", "stop"], Meta(description="keep: runs that have started go on. stop: they are asked to end.")
]


class Deletion(Asked, frozen=True):
    """What happens to runs that have started."""

    running: Running = "keep"
    purge: Annotated[
        bool,
        Meta(description="Remove the definition and its versions as well, and its history when no run is under way."),
    ] = False


class Deleted(Told, frozen=True):
    """What became of it, and how it stands: a job's status, or of a one-shot the state of its run.

    cancelled: nothing of it will start any more. requested: its worker has been asked. too_late: it was over, or, of a one-shot
    whose run is to be kept, it has started. `stopping`: how many runs that have started were asked to end. `may_start`: runs
    whose worker did not answer, so that they have started or may still start.
    """

    job_id: UUID
    status: Cancelling
    state: str
    stopping: int
    may_start: tuple[UUID, ...] = ()
    purged: Annotated[
        bool, Meta(description="Its definition is gone; its history goes when no run of it is under way any more.")
    ] = False


class PauseRequest(Asked, frozen=True):
    """Why it is paused."""

    reason: Reason = "paused on request"


class ResumeRequest(Asked, frozen=True):
    """What becomes of the occurrences of the meantime: skipped, or with `catch_up` treated as missed."""

    catch_up: bool = False


class JobStatus(Told, frozen=True):
    """How a job stands now; `changed` is false when it stood so before.

    `may_start` names runs of a paused job that may still start: due before the pause and waiting, or held by a worker that did
    not answer.
    """

    job_id: UUID
    status: JobState
    changed: bool
    may_start: tuple[UUID, ...] = ()


class SkippedNext(Told, frozen=True):
    """The occurrence that is left out."""

    job_id: UUID
    scheduled_at: Moment


class TriggerRequest(Asked, frozen=True):
    """Run it now. `payload` replaces the job's own for this run; `beside` runs it whatever its overlap policy says."""

    payload: Payload | None = None
    beside: bool = False


class TriggeredRun(Told, frozen=True):
    """The run that was made, and where it stands."""

    run_id: UUID
    job_id: UUID
    state: Literal["ready", "blocked", "skipped_overlap", "replayed"]


class BackfillRequest(Asked, frozen=True):
    """Make the occurrences of [from, to) again, `rate` a second, below all that is on time."""

    from_: Annotated[Moment, Meta(description="The first moment.")] = field(name="from")
    to: Annotated[Moment, Meta(description="The first moment no longer made.")]
    rate: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    overlap: Annotated[
        Literal["queue", "allow"], Meta(description="queue: one after the other. allow: beside each other.")
    ] = "queue"
    dry_run: bool = False
    confirm: bool = False

    def __post_init__(self) -> None:
        check_reach(**{"from": self.from_, "to": self.to})


class BackfillAsked(Told, frozen=True):
    """How many occurrences there are, and the first of them; without an id nothing was made."""

    backfill_id: UUID | None
    job_id: UUID
    count: int
    first: list[Moment]
    is_partial: Annotated[
        bool,
        Meta(description="There are at least so many: counting ended where it would take long."),
    ]


class BackfillStatus(Told, frozen=True):
    """How far a backfill has come."""

    backfill_id: UUID
    job_id: UUID
    state: Literal["active", "done", "cancelled"]
    origin: str
    from_at: Moment
    to_at: Moment
    rate: float
    total: int
    made: int
    asked_at: Moment


class BackfillQuery(PageQuery, frozen=True, kw_only=True):
    """Of which job; without one, of all."""

    job_id: UUID | None = None


class BackfillList(Page[BackfillStatus], frozen=True):
    """A page of backfills, the last asked for first."""


class BackfillCancelled(Told, frozen=True):
    """How many of its runs that had not begun were taken back."""

    backfill_id: UUID
    taken_back: int
