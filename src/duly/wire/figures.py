"""Figures as they cross HTTP: completed runs over time, the current state, and coming fires."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from msgspec import Meta

from duly.domain.fields import Moment, Name
from duly.wire.schema.shapes import RequestModel, ResponseModel

StepSeconds = Annotated[
    int, Meta(ge=60, le=604_800, description="Seconds per step: whole minutes; for more than two days, whole hours.")
]
Seconds = Annotated[float | None, Meta(description="In seconds; null: no attempt started.")]


class SeriesQuery(RequestModel, frozen=True, rename={"since": "from", "until": "to"}):
    """The time range, the step, and the queue of a series."""

    since: Annotated[Moment | None, Meta(description="Start; default: an hour before `to`.")] = None
    until: Annotated[Moment | None, Meta(description="End; default: now.")] = None
    step: StepSeconds | None = None
    queue: Name | None = None


class Point(ResponseModel, frozen=True):
    """The attempts that ended within one step. `failed` includes those that timed out or were lost."""

    at: Moment
    ended: Annotated[int, Meta(description="Attempts that started and ended.")]
    succeeded: int
    failed: int
    retried: Annotated[int, Meta(description="Failed attempts that are retried.")]
    dead: Annotated[int, Meta(description="Failed attempts that are not retried.")]
    cancelled: int
    skipped: Annotated[int, Meta(description="Skipped occurrences.")]
    expired: int
    success_rate: Annotated[float | None, Meta(description="Of attempts that succeeded or failed; null: none did.")]
    skew_p50: Seconds
    skew_p95: Seconds
    skew_p99: Seconds
    duration_p50: Seconds
    duration_p95: Seconds
    duration_p99: Seconds


class Series(ResponseModel, frozen=True, rename={"since": "from", "until": "to"}):
    """Every step of the range, and the total."""

    since: Moment
    until: Moment
    step: int
    queue: str | None
    total: Point
    points: list[Point]


class QueueDepth(ResponseModel, frozen=True):
    """The backlog of a queue, and its workers."""

    name: str
    ready: int
    oldest_age_seconds: float
    workers: int
    is_paused: bool


class Attention(ResponseModel, frozen=True):
    """A condition that needs a person: its kind, its severity, a sentence, and the thing it is about, if that has a name."""

    code: Literal[
        "everything_paused",
        "queue_paused",
        "no_worker",
        "unroutable",
        "queue_old",
        "dead_recently",
        "dead",
        "destination_open",
        "failing_schedule",
    ]
    severity: Literal["bad", "warning"]
    text: str
    id: str | None = None
    count: int | None = None


class Overview(ResponseModel, frozen=True):
    """The state of a tenant, in four numbers with their details."""

    read_at: Moment
    oldest_ready_seconds: Annotated[float, Meta(description="Age of the oldest ready run since it was due.")]
    skew_p95_seconds: Annotated[float | None, Meta(description="Over the last five minutes.")]
    runs_per_second: Annotated[float, Meta(description="Attempts that ended in the last full minute.")]
    failing: Annotated[int, Meta(description="Attempts that failed in the last five minutes.")]
    ready: Annotated[int, Meta(description="Ready runs, counted up to 10,000.")]
    ready_is_more: bool
    dead: Annotated[int, Meta(description="Dead letters, counted up to 10,000.")]
    dead_is_more: bool
    queues: list[QueueDepth]
    attention: list[Attention]


class UpcomingMinute(ResponseModel, frozen=True):
    """The number of fires in one minute."""

    at: Moment
    fires: int


class UpcomingFires(ResponseModel, frozen=True):
    """The fires of the next hour. Those of jobs that wait for an end or an event are unknown."""

    minutes: list[UpcomingMinute]
    is_complete: Annotated[bool, Meta(description="Whether all timers of the hour were counted.")]


class DaysQuery(RequestModel, frozen=True):
    """The number of days, and the time zone."""

    days: Annotated[int, Meta(ge=1, le=90)] = 35
    zone: Annotated[Name, Meta(description="Time zone of the days, a tz database name.")] = "UTC"


class JobDay(ResponseModel, frozen=True):
    """The outcomes of a job's occurrences on one day of the zone. `retried` counts attempts that were not the last."""

    day: date
    succeeded: int
    retried: int
    dead: int
    skipped: int
    cancelled: int


class JobDays(ResponseModel, frozen=True):
    """Each day with an outcome. Of at most 20,000 records; successes disappear with their history."""

    items: list[JobDay]
    zone: str
    clock_changes: Annotated[
        list[date], Meta(description="Days on which the zone's clocks change, up to 35 days ahead.")
    ]
