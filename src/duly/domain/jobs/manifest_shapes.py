"""The shapes of a file of schedules: entries that are specs of jobs, and the short forms that only a file has."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from duly.domain.fields import Duration, Name, Priority, Spec, Tags
from duly.domain.jobs.spec import Callback, JobSpec, RetryPolicy, WorkflowSpec
from duly.domain.notifications.rule import RULES_MAX, RuleSpec
from duly.domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT
from duly.domain.triggers.spec import (
    CalendarSpec,
    CalendarUse,
    Jitter,
    Misfire,
    MisfireWord,
    Mode,
    Moment,
    Overlap,
    OverlapWord,
    Trigger,
    Zone,
)

JOBS_MAX = 10_000
CALENDARS_MAX = 1_000


class ScheduleEntry(Spec, frozen=True):
    """The schedule: a trigger, or in short one of every, cron, when, at and delay; and the policies for missed fires."""

    trigger: Trigger | None = None
    every: Annotated[str, Meta(description="Short for an interval trigger.", examples=["PT5M"])] | None = None
    cron: Annotated[str, Meta(description="Short for a cron trigger.", examples=["30 2 * * 1-5"])] | None = None
    when: Annotated[str, Meta(description="Short for a schedule in English.", examples=["every day at 9am"])] | None = (
        None
    )
    at: Annotated[str, Meta(description="Short for a one-shot at this time.")] | None = None
    delay: Annotated[Duration, Meta(description="Short for a one-shot this long after the file is applied.")] | None = (
        None
    )
    anchor: Annotated[str, Meta(description="With every: the start of the interval.")] | None = None
    mode: Mode | None = None
    tz: Zone | None = None
    start: Moment | None = None
    end: Moment | None = None
    max_runs: int | None = None
    jitter: Jitter | str | None = None
    misfire: Misfire | MisfireWord | None = None
    overlap: Overlap | OverlapWord | None = None
    calendars: list[CalendarUse | str] | None = None
    pause_on_failure: int | None = None


class JobEntry(JobSpec, frozen=True, kw_only=True):
    """A job: its target, schedule and options. Its name is the key above it."""

    paused: (
        Annotated[bool, Meta(description="Left out: applying the file neither pauses nor resumes the job.")] | None
    ) = None


class Defaults(Spec, frozen=True):
    """The defaults of every job in the file."""

    queue: Name = QUEUE_DEFAULT
    priority: Priority = PRIORITY_DEFAULT
    retry: RetryPolicy | None = None
    timeout: Annotated[str | float, Meta(description="ISO 8601, such as PT30S, or seconds.")] | None = None
    tags: Tags | None = None
    on_end: Callback | None = None
    on_failure: Callback | None = None
    tz: Annotated[str, Meta(description="Time zone of schedules that have none.", examples=["Europe/Paris"])] | None = (
        None
    )


class WorkflowFile(WorkflowSpec, frozen=True, rename={"schema": "$schema"}):
    """A workflow in a file of its own, for `duly workflows submit`."""

    schema: Annotated[str, Meta(description="For editors; ignored.")] | None = None


class ManifestSpec(Spec, frozen=True, rename={"schema": "$schema"}):
    """A file of schedules for `duly plan` and `duly apply`."""

    source: Annotated[Name, Meta(description="Name of the file as the owner of its jobs. Keep it when the file moves.")]
    schema: Annotated[str, Meta(description="For editors; ignored.")] | None = None
    defaults: Defaults = Defaults()
    calendars: Annotated[dict[str, CalendarSpec], Meta(max_length=CALENDARS_MAX)] = msgspec.field(default_factory=dict)
    jobs: Annotated[dict[str, JobEntry], Meta(max_length=JOBS_MAX)] = msgspec.field(default_factory=dict)
    notification_rules: Annotated[
        dict[str, RuleSpec], Meta(max_length=RULES_MAX, description="Channels are named, and stored beforehand.")
    ] = msgspec.field(default_factory=dict)
