"""The start of a spec's job: once, now or at a moment, by a schedule, or for events."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from duly.domain.errors import InvalidOption
from duly.domain.jobs.job import check_delay, check_name
from duly.domain.jobs.spec import JobSpec
from duly.domain.triggers.at import At
from duly.domain.triggers.on_event import ON_EVENT
from duly.domain.triggers.schedule import options as asking


def is_one_shot(spec: JobSpec) -> bool:
    """Return whether a spec is a one-shot without a name: it needs no stored definition, because its run carries
    everything.
    """
    return spec.name is None and spec.on_event is None and (spec.schedule is None or is_moment(spec.schedule))


def is_for_now(spec: JobSpec) -> bool:
    """Return whether a job runs once, at once: it waits for no moment and no event."""
    return spec.schedule is None and spec.on_event is None


def is_moment(shape: Mapping[str, Any]) -> bool:
    """Return whether a schedule is a moment or a delay, and nothing else."""
    return {key for key, value in shape.items() if value is not None} == {"trigger"} and fires_once(shape)


def moment_of(shape: Mapping[str, Any] | None) -> datetime | None:
    """Return the moment of a schedule that fires once, at a moment; None for a delay and any other.

    Raises TriggerError.
    """
    if shape is None or delay_of(shape) is not None:
        return None
    trigger = asking.check(shape).trigger
    return trigger.moment if isinstance(trigger, At) else None


def delay_of(shape: Mapping[str, Any] | None) -> timedelta | None:
    """Return the delay of a one-shot after its creation, if its schedule is one. Raises TriggerError."""
    if shape is None or not fires_once(shape) or shape["trigger"].get("delay") is None:
        return None
    asking.check(shape)
    return check_delay(shape["trigger"]["delay"])


def schedule_of(spec: JobSpec, now: datetime | None) -> Mapping[str, Any]:
    """Return the schedule of a job, in the shape that is compiled. Raises Refused."""
    if spec.on_event is not None:
        return _event(spec)
    if spec.schedule is not None:
        asking.check(spec.schedule)
        return spec.schedule
    assert now is not None
    return {"trigger": {"type": "at", "at": now.isoformat(timespec="milliseconds")}}


def _event(spec: JobSpec) -> Mapping[str, Any]:
    assert spec.on_event is not None
    if spec.schedule is not None:
        raise InvalidOption("a job takes schedule or on_event, not both; create two jobs, or leave one out")
    if "event" in spec.payload:
        raise InvalidOption("the payload has a field event, which Duly sets to the event; rename the field")
    kind, source = check_name(spec.on_event.type, "on_event.type"), spec.on_event.source
    return {ON_EVENT: {"type": kind} | ({} if source is None else {"source": check_name(source, "on_event.source")})}


def fires_once(shape: Mapping[str, Any]) -> bool:
    """Return whether a schedule fires once: its trigger is a moment or a delay."""
    trigger = shape.get("trigger")
    return isinstance(trigger, Mapping) and trigger.get("type") == "at"
