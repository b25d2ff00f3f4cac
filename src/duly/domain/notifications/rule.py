"""Rules of notifications: what they select, what they notice, and when their deliveries leave.

`sends_at` is the whole of the timing: a pure function of the rule and of what waits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from duly.domain.duration import parse_option, to_iso
from duly.domain.errors import InvalidOption
from duly.domain.fields import Duration, Name, Spec
from duly.domain.jobs.filter import TAG, Field, Filter, Words, parse
from duly.domain.triggers.errors import TriggerError, shown
from duly.domain.triggers.moments import DAY, moment_of, second_of
from duly.domain.triggers.zones import zones

Event = Literal["failed", "dead", "recovered", "late", "absent", "paused", "queue_age", "circuit_open"]
EVENTS: tuple[Event, ...] = ("failed", "dead", "recovered", "late", "absent", "paused", "queue_age", "circuit_open")
Mode = Literal["every", "on_change", "digest"]

FIELDS: dict[str, Field] = {"name": Words(may_begin=True), "queue": Words(), TAG: Words()}
RULES_MAX = 100  # of a tenant
CHANNELS_MAX = 10
SPAN_MIN, SPAN_MAX = timedelta(seconds=1), timedelta(days=31)
DELIVERIES_MAX = 1_000
_SPANS = ("digest", "late_after", "absent_after", "queue_age", "per")
CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
# Queues, tenants and destinations have neither names of jobs nor tags.
_BEYOND_JOBS = {"queue_age": ("queue",), "circuit_open": ()}

Clock = Annotated[str, Meta(pattern="^([01][0-9]|2[0-3]):[0-5][0-9]$", examples=["22:00"])]


class Quiet(Spec, frozen=True):
    """Hours of each day in which nothing is sent: what happens in them is sent together at their end."""

    start: Clock
    end: Clock
    tz: str = "UTC"


class RuleSpec(Spec, frozen=True):
    """A rule of notifications."""

    events: Annotated[list[Event], Meta(min_length=1, max_length=len(EVENTS))]
    channels: Annotated[list[Name], Meta(min_length=1, max_length=CHANNELS_MAX)]
    filter: Annotated[
        str, Meta(description="Jobs by name, queue and tag: `tag:billing AND name:report*`. Empty: the whole tenant.")
    ] = ""
    mode: Annotated[
        Mode,
        Meta(
            description="every: each event; on_change: a job's first failure or absence, and its recovery; digest: all, together."
        ),
    ] = "every"
    digest: Annotated[Duration, Meta(description="A digest is sent so long after its first event.")] = "PT1H"
    late_after: Annotated[
        Duration, Meta(description="A run is late when it has not started so long after it was due.")
    ] = "PT5M"
    absent_after: Annotated[
        Duration, Meta(description="An occurrence is absent when it has not started so long after it was due.")
    ] = "PT5M"
    queue_age: Annotated[Duration, Meta(description="A queue is too old when its oldest run was due so long ago.")] = (
        "PT10M"
    )
    quiet: Quiet | None = None
    deliveries_max: Annotated[
        int,
        Meta(
            ge=1,
            le=DELIVERIES_MAX,
            description="Deliveries within `per`; what comes after waits, and is sent together.",
        ),
    ] = 20
    per: Duration = "PT1H"


class Rule(msgspec.Struct, frozen=True):
    """A checked rule."""

    spec: RuleSpec
    filter: Filter
    digest: timedelta
    late_after: timedelta
    absent_after: timedelta
    queue_age: timedelta
    per: timedelta

    @property
    def definition(self) -> dict[str, Any]:
        """Return the rule in its normal form, in which two spellings of one rule are equal."""
        spans = {name: to_iso(getattr(self, name)) for name in _SPANS}
        events = [event for event in EVENTS if event in self.spec.events]
        return {**msgspec.to_builtins(self.spec), **spans, "events": events, "channels": sorted(self.spec.channels)}

    @property
    def selects(self) -> dict[str, Any]:
        """Return the filter as the store reads it."""
        found: dict[str, Any] = {name: list(words) for name, words in self.filter.words.items()}
        if (prefix := self.filter.beginnings.get("name")) is not None:
            found["name_prefix"] = prefix
        if self.filter.tags:
            found["tags"] = list(self.filter.tags)
        if self.filter.any_tags:
            found["any_tags"] = list(self.filter.any_tags)
        return found


def read_rule(spec: RuleSpec) -> Rule:
    """Check a rule. Raises InvalidOption, InvalidFilter."""
    found = parse(spec.filter, FIELDS)
    used = {*found.words, *found.beginnings, *([TAG] if found.tags or found.any_tags else [])}
    for event, allowed in _BEYOND_JOBS.items():
        if event in spec.events and (beyond := sorted(used.difference(allowed))):
            what = "a queue" if allowed else "a destination"
            raise InvalidOption(
                f"event {event} is about {what}, which has no {beyond[0]}; put it into a rule without {beyond[0]} in its filter"
            )
    if len(set(spec.events)) < len(spec.events) or len(set(spec.channels)) < len(spec.channels):
        raise InvalidOption("an event or a channel is named twice; name each once")
    if spec.events == ["recovered"]:
        raise InvalidOption("recovered alone never happens: name the events whose end it is, such as dead")
    if spec.quiet is not None:
        _check_quiet(spec.quiet)
    return Rule(
        spec,
        found,
        *(_span(getattr(spec, name), name) for name in _SPANS),
    )


def sends_at(rule: Rule, first_at: datetime, sent: Sequence[datetime]) -> datetime:
    """Return when what waits since `first_at` may be sent; `sent` are earlier deliveries, the oldest first.

    All that waits by then goes in one delivery, so nothing is lost by waiting.
    """
    at = first_at + rule.digest if rule.spec.mode == "digest" else first_at
    if len(sent) >= rule.spec.deliveries_max:
        at = max(at, sent[-rule.spec.deliveries_max] + rule.per)
    return at if rule.spec.quiet is None else after_quiet(rule.spec.quiet, at)


def after_quiet(quiet: Quiet, at: datetime) -> datetime:
    """Return a moment, or the end of the quiet hours that it is in."""
    zone = zones.find(quiet.tz)
    start, end = _seconds(quiet.start), _seconds(quiet.end)
    local = zone.local_at(second_of(at))
    since, length = (local - start) % DAY, (end - start) % DAY  # since they last began, by the clock on the wall
    return at if since >= length else moment_of(zone.first_instant(local - since + length))


def _check_quiet(quiet: Quiet) -> None:
    for text in (quiet.start, quiet.end):
        if CLOCK.fullmatch(text) is None:
            raise InvalidOption(f"quiet hours {shown(text)} are no time of day; write 22:00")
    if quiet.start == quiet.end:
        raise InvalidOption("quiet hours that end when they start are the whole day; delete the rule instead")
    try:
        zones.find(quiet.tz)
    except TriggerError as error:
        raise InvalidOption(f"quiet hours: {error.message}") from None


def _seconds(clock: str) -> int:
    hours, minutes = clock.split(":")
    return int(hours) * 3_600 + int(minutes) * 60


def _span(value: Any, name: str) -> timedelta:
    span = parse_option(value, name)
    if not SPAN_MIN <= span <= SPAN_MAX:
        raise InvalidOption(f"{name} {to_iso(span)} is outside PT1S to P31D")
    return span
