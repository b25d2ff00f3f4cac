"""The schedule of a job, field by field, as HTTP and files describe it.

These structs are the source of schemas. `domain/triggers` reads a schedule from plain values, with its own messages,
and stores it as written.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from duly.domain.fields import Spec

Moment = Annotated[str, Meta(description="ISO 8601, with an offset or Z.", examples=["2026-12-01T09:00:00+01:00"])]
Zone = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=64,
        description="A tz database name with a slash, or UTC, or GMT.",
        examples=["Europe/Berlin"],
    ),
]
Period = Annotated[
    str, Meta(min_length=2, max_length=64, description="ISO 8601, such as PT5M or P1D.", examples=["PT5M"])
]
Count = Annotated[int, Meta(ge=1)]
Expression = Annotated[str, Meta(min_length=1, max_length=256)]
Mode = Literal["fixed_rate", "fixed_delay"]
MisfireWord = Literal["fire_once", "fire_all", "skip"]
OverlapWord = Literal["skip", "buffer_one", "queue", "cancel_running", "allow"]


class TriggerAt(Spec, frozen=True, tag_field="type", tag="at"):
    """A one-shot, at a moment or after a delay: give one of `at` and `delay`."""

    at: (
        Annotated[
            Moment,
            Meta(
                description="With an offset, or local time with `tz`; up to microseconds. At most a minute in the past."
            ),
        ]
        | UnsetType
    ) = UNSET
    delay: (
        Annotated[
            str | float,
            Meta(
                description="Delay from creation, by the database's clock: ISO 8601 in clock units, or seconds.",
                examples=["PT30S", 0.25],
            ),
        ]
        | UnsetType
    ) = UNSET
    tz: Zone | None = None


class TriggerCron(Spec, frozen=True, tag_field="type", tag="cron"):
    """A cron expression in the local time of a zone."""

    expr: Annotated[Expression, Meta(examples=["0 8 * * MON-FRI"])]
    tz: Zone | None = None


class TriggerInterval(Spec, frozen=True, tag_field="type", tag="interval"):
    """A fixed period, repeated."""

    every: Annotated[Period, Meta(description="ISO 8601 in clock units, such as PT5M or PT24H.")]
    anchor: Moment | None = None
    mode: Mode | None = None
    tz: Zone | None = None


class TriggerIso8601(Spec, frozen=True, tag_field="type", tag="iso8601"):
    """An ISO 8601 repeating interval."""

    text: Annotated[Expression, Meta(examples=["R/2026-12-01T09:00:00Z/P1D"])]
    tz: Zone | None = None


class TriggerRrule(Spec, frozen=True, tag_field="type", tag="rrule"):
    """A recurrence rule (RFC 5545)."""

    rrule: Annotated[str, Meta(min_length=1, max_length=512, examples=["FREQ=MONTHLY;BYDAY=-1FR"])]
    dtstart: Annotated[str, Meta(examples=["2026-12-01T09:00:00"])]
    tz: Zone | None = None
    exdates: list[str] | None = None


class TriggerText(Spec, frozen=True, tag_field="type", tag="text"):
    """A schedule in plain English, from a closed grammar."""

    text: Annotated[Expression, Meta(examples=["every weekday at 9:30am"])]
    tz: Zone | None = None


Member = TriggerAt | TriggerCron | TriggerInterval | TriggerIso8601 | TriggerRrule | TriggerText


class TriggerAny(Spec, frozen=True, tag_field="type", tag="any"):
    """The union of several triggers; equal instants count once."""

    of: Annotated[list[Member], Meta(min_length=2, max_length=10)]


Trigger = Member | TriggerAny


class Jitter(Spec, frozen=True):
    """A delay of each fire by less than `max`."""

    max: Period
    per: Literal["job", "occurrence"] | None = None


class Misfire(Spec, frozen=True):
    """The policy for occurrences that were noticed too late."""

    policy: MisfireWord | None = None
    grace: Period | None = None
    window: Period | None = None
    rate: Annotated[float, Meta(gt=0)] | None = None
    limit: Count | None = None


class Overlap(Spec, frozen=True):
    """The policy for a run that is due while another is active."""

    policy: OverlapWord | None = None
    limit: Count | None = None


class CalendarUse(Spec, frozen=True):
    """A calendar, and how it is used."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    mode: Literal["exclude", "include"] | None = None
    on_hit: Literal["skip", "defer"] | None = None


class Schedule(Spec, frozen=True):
    """The fires of a job, and the policies for those that cannot run as planned."""

    trigger: Trigger
    start: Annotated[Moment, Meta(description="First time at which it may fire.")] | None = None
    end: Annotated[Moment, Meta(description="It fires before this time only.")] | None = None
    max_runs: Annotated[Count, Meta(description="Number of runs after which the job is completed.")] | None = None
    jitter: Jitter | None = None
    misfire: Misfire | None = None
    overlap: Overlap | None = None
    calendars: list[CalendarUse] | None = None
    pause_on_failure: (
        Annotated[Count, Meta(description="Pause the job after this many failed runs in a row.")] | None
    ) = None


class Window(Spec, frozen=True):
    """A span of time; the end is not part of it."""

    start: Moment
    end: Moment


class Weekly(Spec, frozen=True, rename={"start": "from", "end": "to"}):
    """Hours of the week, in local time."""

    days: Annotated[str, Meta(examples=["SAT,SUN"])]
    start: Annotated[str, Meta(examples=["00:00"])]
    end: Annotated[str, Meta(examples=["24:00"])]


class CalendarSpec(Spec, frozen=True):
    """Days and hours at which jobs do, or do not, fire."""

    tz: Zone | None = None
    dates: list[Annotated[str, Meta(extra_json_schema={"format": "date"})]] | None = None
    windows: list[Window] | None = None
    weekly: list[Weekly] | None = None


class CalendarDefinition(CalendarSpec, frozen=True):
    """Days and hours at which jobs do, or do not, fire."""

    name: (
        Annotated[str, Meta(min_length=1, max_length=200, description="Same as in the path; optional.")] | UnsetType
    ) = UNSET
