"""The shape of a file of schedules, as people write it. The reader follows it, and editors get it as a JSON schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from duly.domain.jobs.job import GATE_PLACES_MAX, TAGS_MAX
from duly.domain.runs.run import NAME_CHARACTERS_MAX, NOT_BLANK, PRIORITY_DEFAULT, QUEUE_DEFAULT
from duly.domain.targets.shapes import CommandTarget, ContainerTarget, WebhookTarget
from duly.domain.workflows.workflow import NODES_MAX

JOBS_MAX = 10_000
CALENDARS_MAX = 1_000

Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=NOT_BLANK)]
Period = Annotated[
    str | float,
    Meta(description="An ISO 8601 duration such as PT30S or P1D, or a number of seconds.", examples=["PT5M"]),
]
Moment = Annotated[str, Meta(description="A moment such as 2026-11-02T09:00:00Z, or local where a zone is given.")]
Zone = Annotated[str, Meta(description="A tz database name such as Europe/Paris, or UTC.", examples=["Europe/Paris"])]
Tags = Annotated[list[Name], Meta(max_length=TAGS_MAX, description="Words to find its runs by.")]
Mode = Literal["fixed_rate", "fixed_delay"]


class _Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    pass


class AtTrigger(_Shape, frozen=True, tag_field="type", tag="at"):
    """Once, at a moment or after a delay: one of the two."""

    at: Moment | None = None
    delay: Period | None = None
    tz: Zone | None = None


class CronTrigger(_Shape, frozen=True, tag_field="type", tag="cron"):
    """By a cron expression of five fields, or six with seconds first."""

    expr: str
    tz: Zone | None = None


class IntervalTrigger(_Shape, frozen=True, tag_field="type", tag="interval"):
    """Again and again after a period: counted from the anchor, or from the end of the last run."""

    every: str
    anchor: Moment | None = None
    mode: Mode | None = None
    tz: Zone | None = None


class Iso8601Trigger(_Shape, frozen=True, tag_field="type", tag="iso8601"):
    """By a repeating interval such as R/2026-01-31T09:00:00Z/P1M."""

    text: str
    tz: Zone | None = None


class RruleTrigger(_Shape, frozen=True, tag_field="type", tag="rrule"):
    """By a rule of RFC 5545."""

    rrule: str
    dtstart: str
    tz: Zone | None = None
    exdates: list[str] | None = None


class TextTrigger(_Shape, frozen=True, tag_field="type", tag="text"):
    """In English, such as `every weekday at 9:30am`."""

    text: str
    tz: Zone | None = None


Member = AtTrigger | CronTrigger | IntervalTrigger | Iso8601Trigger | RruleTrigger | TextTrigger


class AnyTrigger(_Shape, frozen=True, tag_field="type", tag="any"):
    """Whenever one of several triggers fires."""

    of: Annotated[list[Member], Meta(min_length=2, max_length=10)]


Trigger = Member | AnyTrigger


class JitterShape(_Shape, frozen=True):
    """A delay that spreads what is due at once: one for the job, or another for each occurrence."""

    max: str
    per: Literal["job", "occurrence"] | None = None


class MisfireShape(_Shape, frozen=True):
    """What becomes of an occurrence that is noticed too late."""

    policy: Literal["fire_once", "fire_all", "skip"] | None = None
    grace: str | None = None
    window: str | None = None
    rate: float | None = None
    limit: int | None = None


class OverlapShape(_Shape, frozen=True):
    """What becomes of an occurrence that is due while the last run is active."""

    policy: Literal["skip", "buffer_one", "queue", "cancel_running", "allow"] | None = None
    limit: int | None = None


class CalendarUse(_Shape, frozen=True):
    """A calendar that the schedule avoids, or keeps to."""

    name: Name
    mode: Literal["exclude", "include"] | None = None
    on_hit: Literal["skip", "defer"] | None = None


class ScheduleShape(_Shape, frozen=True):
    """When it fires: a trigger, or in short one of every, cron, when, at and delay; and what is done when it cannot."""

    trigger: Trigger | None = None
    every: Annotated[str, Meta(description="In short for an interval.", examples=["PT5M"])] | None = None
    cron: Annotated[str, Meta(description="In short for a cron expression.", examples=["30 2 * * 1-5"])] | None = None
    when: Annotated[str, Meta(description="In short for English.", examples=["every day at 9am"])] | None = None
    at: Annotated[str, Meta(description="In short for once, at a moment.")] | None = None
    delay: Annotated[Period, Meta(description="In short for once, so long after it was applied.")] | None = None
    anchor: Annotated[str, Meta(description="With every: the moment it counts from.")] | None = None
    mode: Mode | None = None
    tz: Zone | None = None
    start: Moment | None = None
    end: Moment | None = None
    max_runs: int | None = None
    jitter: JitterShape | str | None = None
    misfire: MisfireShape | Literal["fire_once", "fire_all", "skip"] | None = None
    overlap: OverlapShape | Literal["skip", "buffer_one", "queue", "cancel_running", "allow"] | None = None
    calendars: list[CalendarUse | str] | None = None
    pause_on_failure: int | None = None


class FunctionShape(_Shape, frozen=True, tag_field="type", tag="function"):
    """What runs: a function, by the name of its handler. This type need not be said."""

    handler: Name


class RuleShape(_Shape, frozen=True):
    """What becomes of a failure of one kind: exactly one of `error`, `status` and `exit`. A snooze uses up no attempt."""

    then: Literal["retry", "bury", "snooze"]
    error: Annotated[str, Meta(max_length=200, examples=["ValueError", "*Timeout"])] | None = None
    status: int | Annotated[str, Meta(examples=["4xx", "500-599"])] | None = None
    exit: int | Annotated[str, Meta(examples=["1-10"])] | None = None
    delay: Period | None = None


class RetryShape(_Shape, frozen=True):
    """How often and how soon a failed run is tried again."""

    policy: Literal["exponential", "linear", "fixed", "list"] = "exponential"
    max_attempts: Annotated[int, Meta(ge=1, le=1000)] = 5
    base: Period = "PT1S"
    cap: Period = "PT10M"
    jitter: (
        Annotated[
            Literal["full", "equal", "none"] | Annotated[float, Meta(ge=0, le=1)],
            Meta(description="The part of a gap that is left to chance."),
        ]
        | None
    ) = None
    delays: Annotated[list[Period], Meta(max_length=100, description="Of a list; the last one repeats.")] = []
    max_age: Annotated[Period, Meta(description="No attempt starts later after the first was due.")] | None = None
    rules: Annotated[list[RuleShape], Meta(max_length=32, description="The first that fits decides.")] = []


class ConcurrencyShape(_Shape, frozen=True):
    """How many runs of a key may be ready or running at once."""

    key: Name
    limit: Annotated[int, Meta(ge=1, le=GATE_PLACES_MAX)] = 1
    order: (
        Annotated[Literal["fifo"], Meta(description="Strictly one after another, in order of their moments.")] | None
    ) = None


class RateShape(_Shape, frozen=True):
    """How many runs of a key start in each stretch of time, across the whole fleet; `burst` of them at once after a rest."""

    key: Name
    limit: Annotated[float, Meta(gt=0)]
    per: Period = "PT1S"
    burst: Annotated[int, Meta(ge=1, le=999_999)] = 1


class CallbackShape(_Shape, frozen=True):
    """Who is told of a run's end: a URL, by a signed webhook on the run's queue or another; or a job, by its name or id."""

    url: Annotated[str, Meta(examples=["https://hooks.example/done"])] | None = None
    job: Name | None = None
    queue: Name | None = None


Told = CallbackShape | Annotated[str, Meta(description="In short: a URL, or the name of a job.")]


class DefaultsShape(_Shape, frozen=True):
    """What holds for every job of the file that does not say it itself."""

    queue: Name = QUEUE_DEFAULT
    priority: Annotated[int, Meta(ge=0, le=9)] = PRIORITY_DEFAULT
    retry: RetryShape | None = None
    timeout: Period | UnsetType | None = UNSET
    tags: Tags | None = None
    on_done: Told | None = None
    on_dead: Told | None = None
    tz: Zone | None = None


class EdgeShape(_Shape, frozen=True):
    """A node that another waits for, and the end of it that lets that one run."""

    node: Name
    on: Literal["success", "failure", "always"] = "success"


class ReferenceShape(_Shape, frozen=True, rename={"node": "$result"}):
    """The result of a node, or with steps a part of it."""

    node: Name
    path: list[str | int] | None = None


class NodeShape(_Shape, frozen=True):
    """A node of a workflow: what runs and how, as a job says it, and what it waits for."""

    target: FunctionShape | WebhookTarget | CommandTarget | ContainerTarget | Name
    after: list[EdgeShape | Annotated[str, Meta(description="In short: it must have succeeded.")]] | None = None
    map: Annotated[ReferenceShape, Meta(description="One run for each item of this list.")] | None = None
    queue: Name | None = None
    priority: Annotated[int, Meta(ge=0, le=9, description="0 (first) to 9 (last).")] | None = None
    payload: dict[str, Any] | None = None
    retry: RetryShape | None = None
    timeout: Period | UnsetType | None = UNSET
    concurrency: ConcurrencyShape | None = None
    rate_limit: RateShape | None = None
    expires_at: (
        Annotated[str, Meta(description="Not started after this moment, such as 2026-11-02T09:00:00Z.")] | None
    ) = None
    expires_after: (
        Annotated[Period, Meta(description="Not started when so long has passed since the workflow was submitted.")]
        | None
    ) = None
    tags: Tags | None = None


class WorkflowTargetShape(_Shape, frozen=True, tag_field="type", tag="workflow"):
    """A whole workflow, started each time; the run ends when it has ended."""

    nodes: Annotated[dict[str, NodeShape], Meta(min_length=1, max_length=NODES_MAX)]
    name: Name | None = None


class WorkflowShape(_Shape, frozen=True, rename={"schema": "$schema"}):
    """A workflow in a file of its own, for `duly workflows submit`."""

    name: Name
    nodes: Annotated[dict[str, NodeShape], Meta(min_length=1, max_length=NODES_MAX)]
    schema: Annotated[str, Meta(description="For editors; not read.")] | None = None
    tags: Tags | None = None
    on_done: Told | None = None
    on_dead: Told | None = None


class JobShape(_Shape, frozen=True):
    """A job: what runs, when, and how."""

    target: FunctionShape | WebhookTarget | CommandTarget | ContainerTarget | WorkflowTargetShape | Name
    schedule: ScheduleShape | Annotated[str, Meta(description="In English, such as `every day at 9am`.")]
    queue: Name | None = None
    priority: Annotated[int, Meta(ge=0, le=9, description="0 (first) to 9 (last).")] | None = None
    payload: dict[str, Any] | None = None
    retry: RetryShape | None = None
    timeout: Period | UnsetType | None = UNSET
    concurrency: ConcurrencyShape | None = None
    rate_limit: RateShape | None = None
    expires_after: (
        Annotated[Period, Meta(description="A run is not started when so long has passed since its moment.")] | None
    ) = None
    tags: Tags | None = None
    on_done: Told | None = None
    on_dead: Told | None = None
    paused: Annotated[bool, Meta(description="Left out: whoever paused or resumed it decides.")] | None = None


class WindowShape(_Shape, frozen=True):
    """A stretch of time, its end not included."""

    start: Moment
    end: Moment


class WeeklyShape(_Shape, frozen=True, rename={"start": "from", "end": "to"}):
    """The same hours on some days of each week."""

    days: Annotated[str, Meta(examples=["SAT,SUN"])]
    start: Annotated[str, Meta(examples=["00:00"])]
    end: Annotated[str, Meta(examples=["24:00"])]


class CalendarShape(_Shape, frozen=True):
    """Stretches of time that schedules avoid, or keep to."""

    tz: Zone | None = None
    dates: list[str] | None = None
    windows: list[WindowShape] | None = None
    weekly: list[WeeklyShape] | None = None


class ManifestShape(_Shape, frozen=True, rename={"schema": "$schema"}):
    """A file of schedules for `duly plan` and `duly apply`."""

    source: Annotated[Name, Meta(description="The file's own name, which owns its jobs. Keep it when the file moves.")]
    schema: Annotated[str, Meta(description="For editors; not read.")] | None = None
    defaults: DefaultsShape = DefaultsShape()
    calendars: dict[str, CalendarShape] = {}
    jobs: dict[str, JobShape] = {}


def without_default_type(schemas: dict[str, Any]) -> dict[str, Any]:
    """Let a function be written without its type, in schemas by their names."""
    function = schemas[FunctionShape.__name__]
    required = [name for name in function["required"] if name != "type"]
    return schemas | {FunctionShape.__name__: {**function, "required": required}}
