"""Runs and their attempts as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from duly.domain.fields import Moment, Name, Priority
from duly.domain.runs.run import RunState as State
from duly.wire.jobs.definitions import RunDefinition
from duly.wire.pages import DeadFilter, Items, NextPageToken, Page, PageQuery, PageToken
from duly.wire.schema.shapes import ReplayRate, RequestModel, ResponseModel, check_reach

Outcome = Literal["succeeded", "failed", "timed_out", "lost", "cancelled", "snoozed", "fenced", "skipped"]


Cancelling = Literal["cancelled", "requested", "too_late"]


class Attempt(ResponseModel, frozen=True):
    """One attempt of a run, or the record that it was skipped. `detail` is an error with its traceback, or what was skipped."""

    attempt: int
    outcome: Outcome
    started_at: Moment | None
    finished_at: Moment
    fence: int | None
    worker_id: UUID | None
    reason: str | None
    result: Any
    detail: Any
    became: Annotated[str | None, Meta(description="State of the run after the attempt.")] = None
    due_at: Moment | None = None


class SkippedStretch(ResponseModel, frozen=True):
    """Occurrences that did not run, as one entry: how many, the first and the last."""

    count: int
    first: Moment
    last: Moment


class TargetSummary(ResponseModel, frozen=True):
    """A target in short: the handler that a worker must have, and a webhook's address without its query.

    Types may be added.
    """

    type: Annotated[str, Meta(examples=["function", "webhook", "command", "container"])]
    handler: str
    url: str | None = None


Missed = Annotated[int | None, Meta(description="Missed occurrences that the run covers, itself included.")]


IsArchived = Annotated[bool, Meta(description="It was read from the archive; the database has it no more.")]


class RunSummary(ResponseModel, frozen=True):
    """A run in a list."""

    run_id: UUID
    job_id: UUID
    state: State
    queue: str
    handler: str
    attempt: int
    scheduled_at: Moment
    due_at: Moment
    finished_at: Moment | None
    reason: str | None
    started_at: Moment | None = None  # Always there, as is what follows; of an older server it is not.
    job_name: str | None = None
    workflow_id: UUID | None = None
    node: str | None = None
    skipped: Annotated[SkippedStretch | None, Meta(description="Range of skipped occurrences.")] = None
    missed: Missed = None
    payload_preview: Annotated[
        str | None,
        Meta(description="The payload as JSON, at most 200 characters; null when it is empty or no longer retained."),
    ] = None
    is_archived: IsArchived = False


class Dependency(RequestModel, frozen=True):
    """A one-shot that another depends on, and the required outcome."""

    job: UUID
    on: Annotated[
        Literal["success", "failure", "always"], Meta(description="always: however it ends, also when it is skipped.")
    ] = "success"


class Run(ResponseModel, frozen=True):
    """A run, with its attempts so far, the latest last."""

    run_id: UUID
    job_id: UUID
    state: State
    queue: str
    handler: str
    priority: int | None
    attempt: int
    scheduled_at: Moment
    due_at: Moment
    started_at: Moment | None
    finished_at: Moment | None
    fire_skew_ms: float | None
    reason: str | None
    worker_id: UUID | None
    fence: int | None
    payload: Any
    result: Any
    tags: list[str]
    request_id: str | None
    traceparent: str | None
    parent: UUID | None
    progress: Progress | None
    checkpoint: CheckpointSize | None
    attempts: list[Attempt]
    # Always there; of an older server they are not.
    target: TargetSummary | None = None
    workflow_id: UUID | None = None
    node: str | None = None
    depends_on: list[Dependency] = msgspec.field(default_factory=list)
    started_workflow_id: Annotated[
        UUID | None,
        Meta(description="Workflow that it started, if its target is one; after a replay, the last."),
    ] = None
    lease: Annotated[RunLease | None, Meta(description="Worker that holds it; null: none.")] = None
    payload_kept: Annotated[bool, Meta(description="False: the run has ended, and its payload was deleted.")] = True
    definition: RunDefinition | None = None
    rerun_of: Annotated[UUID | None, Meta(description="Ended run that this one was created from.")] = None
    submitted_by: Annotated[
        Submitter | None,
        Meta(description="Null: created by a schedule, a batch, an event, or a program on the database."),
    ] = None
    missed: Missed = None
    is_archived: IsArchived = False


class Submitter(ResponseModel, frozen=True):
    """The submitter or trigger of a run, as in the audit: a key, a session, or a local account."""

    kind: Literal["key", "session", "local", "engine"]
    key_id: str | None
    name: str
    action: Annotated[str, Meta(examples=["job.created", "job.triggered"])]
    at: Moment
    request_id: str | None


class RunLease(ResponseModel, frozen=True):
    """A worker's lease of a run, and since when."""

    worker_id: UUID
    fence: int
    claimed_at: Moment


class Progress(ResponseModel, frozen=True):
    """The progress that a run reports: `done` of `total`, which may be unknown; `fraction` is their ratio, at most 1."""

    done: float | None
    total: float | None
    fraction: float | None
    note: str | None
    updated_at: Moment


class CheckpointSize(ResponseModel, frozen=True):
    """The checkpoint of a run: its size, and when and under which fence it was saved."""

    bytes: int
    fence: int
    saved_at: Moment


class SavedCheckpoint(CheckpointSize, frozen=True):
    """The checkpoint for the run's next attempt."""

    value: Any


class RunList(Page[RunSummary], frozen=True):
    """A page of runs, the last scheduled first."""


class AttemptList(Items[Attempt], frozen=True):
    """All attempts of a run."""


class LogLine(ResponseModel, frozen=True):
    """One line that a run logged."""

    attempt: int
    number: int
    logged_at: Moment
    level: str
    message: str
    fields: dict[str, Any] | None

    @property
    def cursor(self) -> str:
        """The position in the log, from which a stream can be resumed."""
        return f"{self.attempt}/{self.number}"


class LogQuery(RequestModel, frozen=True):
    """The position to go on from."""

    page_token: PageToken | None = None


class LogEnd(ResponseModel, frozen=True):
    """The last event of a followed log: the state of the run."""

    state: State


class LogPage(ResponseModel, frozen=True):
    """Lines of a run's log, in order. The token reads later lines, also after the last page."""

    items: list[LogLine]
    next_page_token: str
    is_final: Annotated[bool, Meta(description="The run has ended; these are its last lines.")]


class Cancellation(RequestModel, frozen=True):
    """The subtasks to cancel."""

    children: Annotated[
        bool,
        Meta(description="Cancel the run's subtasks as well, recursively; workers are asked to stop running ones."),
    ] = False


class RunCancelled(ResponseModel, frozen=True):
    """The result of a cancel, and the state of the run.

    cancelled: it was waiting, and will never start. requested: a worker holds it and has been asked to stop it; the run
    will show its outcome. too_late: it had ended already, as `state` says. `children`: how many subtasks were
    cancelled, or asked to stop, with it.
    """

    run_id: UUID
    status: Cancelling
    state: State
    children: int


class RunMoved(ResponseModel, frozen=True):
    """A dead run that was replayed or discarded."""

    run_id: UUID
    status: Literal["replayed", "discarded"]


class RerunRequest(RequestModel, frozen=True):
    """Changes to the run; those left out stay. `at` is when it runs: now, if it is left out."""

    payload: Annotated[dict[str, Any], Meta(description="Replaces its payload. At most 256 KiB.")] | None = None
    queue: Name | None = None
    priority: Priority | None = None
    at: Moment | None = None

    def __post_init__(self) -> None:
        check_reach(at=self.at)


class Rerun(ResponseModel, frozen=True):
    """The new run. It is a one-shot of its own: its job has the same id."""

    run_id: UUID
    job_id: UUID
    rerun_of: UUID
    scheduled_at: Moment


class DeadLetter(ResponseModel, frozen=True):
    """A run that gave up, and waits for a person."""

    run_id: UUID
    job_id: UUID
    queue: str
    handler: str
    attempt: int
    scheduled_at: Moment
    buried_at: Moment
    reason: str
    replays: int
    tags: list[str] = msgspec.field(default_factory=list)  # Always there; of an older server they are not.


class DeadGroup(ResponseModel, frozen=True):
    """Dead letters with the same normalized reason: parts that differ from run to run are written as …."""

    error: str
    count: int
    handlers: list[str]
    first_buried_at: Moment
    last_buried_at: Moment
    sample: list[UUID]


class DeadList(Page[DeadLetter], frozen=True):
    """A page of dead letters, the last buried first. With group=error, groups instead, of the last 10,000 that match."""

    groups: list[DeadGroup] | None = None


class DeadQuery(PageQuery, frozen=True):
    """Filters of dead letters; with `group`, counted by normalized reason."""

    filter: DeadFilter | None = None
    group: Literal["error"] | None = None


class DeadEdit(RequestModel, frozen=True):
    """The payload for the replay of a dead run."""

    payload: dict[str, Any]


BULK_LIMIT_DEFAULT, BULK_LIMIT_MAX = 1_000, 10_000


class BulkRequest(RequestModel, frozen=True):
    """The dead letters: those that match a filter, or all, up to a limit, from where an earlier request ended."""

    filter: DeadFilter = ""
    dry_run: bool = False
    limit: Annotated[
        Annotated[int, Meta(ge=1, le=BULK_LIMIT_MAX)] | None,
        Meta(description="Maximum number to change; default: 1,000, and a dry run counts all."),
    ] = None
    page_token: PageToken | None = None
    all: Annotated[bool, Meta(description="All dead letters, instead of a filter.")] = False


class BulkReplay(BulkRequest, frozen=True, kw_only=True):
    """Options of the replay: at once, or at a rate: each is due a moment after the one before."""

    rate: ReplayRate | None = None


class BulkEdit(BulkRequest, frozen=True, kw_only=True):
    """The same payload for all that match."""

    payload: dict[str, Any]


class BulkResponse(ResponseModel, frozen=True):
    """The number that matched, up to the limit, and that were moved: none by a dry run, and not those that others took
    first.
    """

    matched: int
    moved: int
    dry_run: bool
    sample: list[UUID]
    next_page_token: NextPageToken
    is_partial: Annotated[bool, Meta(description="The dry run stopped at its time limit: at least this many match.")]
