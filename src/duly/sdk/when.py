"""When, in keywords: what people write of a schedule in Python, as the shape that docs/triggers.md describes.

One of `cron`, `every`, `text` and `schedule` says when; the others belong to it. `schedule` is the whole shape, and takes none
of them. A short form stands for the long one: `overlap="queue"` for `{"policy": "queue"}`, a calendar's name for its use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from duly.domain.duration import Duration, parse, to_iso
from duly.domain.errors import InvalidOption
from duly.domain.job import check_moment
from duly.domain.triggers.calendars import Calendar
from duly.domain.triggers.interval import parse_every
from duly.domain.triggers.moments import DAY, EPOCH
from duly.domain.triggers.schedule_reading import compile_schedule
from duly.domain.triggers.schedules import Schedule
from duly.domain.triggers.timing import calendars_in, every_shape, timing_of
from duly.domain.triggers.zones import UTC_ZONE

# Stands for the id that a job will have: only the value of an `H` depends on it, never whether there is one.
_SOME_JOB = "some-job"
_KINDS = ("cron", "every", "text", "schedule")


class When(TypedDict, total=False):
    """The keywords of a schedule."""

    cron: str | None
    every: Duration | None
    text: str | None
    schedule: Mapping[str, Any] | None
    tz: str | None
    start: str | datetime | None
    end: str | datetime | None
    max_runs: int | None
    jitter: Duration | Mapping[str, Any] | None
    misfire: str | Mapping[str, Any] | None
    overlap: str | Mapping[str, Any] | None
    calendars: Sequence[str | Mapping[str, Any]] | None
    pause_on_failure: int | None


def shape_of(when: When) -> dict[str, Any] | None:
    """Give the shape that keywords ask for; None without any. Raises InvalidOption, InvalidSchedule."""
    given: dict[str, Any] = {key: value for key, value in when.items() if value is not None}
    if unknown := sorted(given.keys() - When.__annotations__.keys()):
        raise InvalidOption(f"{unknown[0]}= is no option; a schedule has {', '.join(When.__annotations__)}")
    if not given:
        return None
    kind = _kind_of(given)
    if kind == "schedule":
        return _whole(given["schedule"])
    shape = {"trigger": _trigger(kind, given)}
    return shape | {key: _WRITTEN[key](value, key) for key, value in given.items() if key in _WRITTEN}


def check(shape: Mapping[str, Any]) -> Schedule:
    """Compile a shape for what is wrong with it today and on every other day. Raises TriggerError, which carries all of it.

    What depends on the moment, the job or the calendars in the store is judged when it gets there.
    """
    calendars = _stand_ins(shape)
    schedule = compile_schedule(shape, job_id=_SOME_JOB, now=EPOCH, known_calendars=calendars)
    timing_of(shape, job_id=_SOME_JOB, now=EPOCH, calendars=calendars)
    return schedule


def _kind_of(given: Mapping[str, Any]) -> str:
    kinds = [kind for kind in _KINDS if kind in given]
    if not kinds:
        raise InvalidOption(
            f"{next(iter(given))}= belongs to a schedule; give cron=, every=, text= or schedule= as well"
        )
    if len(kinds) > 1:
        raise InvalidOption(f"{kinds[0]}= and {kinds[1]}= both say when; give one of them")
    if kinds == ["schedule"] and len(given) > 1:
        other = next(key for key in given if key != "schedule")
        raise InvalidOption(f"schedule= is the whole schedule and takes no {other}=; write it inside")
    return kinds[0]


def _whole(schedule: object) -> dict[str, Any]:
    if not isinstance(schedule, Mapping):
        raise InvalidOption(f'schedule {schedule!r} is not a shape; write {{"trigger": {{"type": "cron", …}}, …}}')
    return dict(schedule)


def _trigger(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    zone = {"tz": given["tz"]} if "tz" in given else {}
    if kind == "every":
        return {**every_shape(int(parse_every(given["every"]).total_seconds()))["trigger"], **zone}
    return {"type": kind, "expr" if kind == "cron" else "text": given[kind], **zone}


def _moment(value: str | datetime, what: str) -> str:
    return check_moment(value, what).isoformat() if isinstance(value, datetime) else value


def _jitter(value: Duration | Mapping[str, Any], what: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    return {"max": value if isinstance(value, str) else to_iso(parse(value, what))}


def _policy(value: str | Mapping[str, Any], _: str) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {"policy": value}


def _uses(value: Sequence[str | Mapping[str, Any]], what: str) -> list[Any]:
    if isinstance(value, str):
        raise InvalidOption(f"{what} {value!r} is one text; give a list: {what}=[{value!r}]")
    return [{"name": use} if isinstance(use, str) else use for use in value]


def _as_it_is(value: Any, _: str) -> Any:
    return value


_WRITTEN: dict[str, Callable[[Any, str], Any]] = {
    "start": _moment,
    "end": _moment,
    "max_runs": _as_it_is,
    "jitter": _jitter,
    "misfire": _policy,
    "overlap": _policy,
    "calendars": _uses,
    "pause_on_failure": _as_it_is,
}


def _stand_ins(shape: Mapping[str, Any]) -> dict[str, Calendar]:
    """Give for each calendar one that permits everything, as it is used: the store is not asked yet."""
    names = calendars_in(shape)
    uses = [use for use in shape["calendars"] if isinstance(use, Mapping)] if names else []
    kept_to = {use.get("name") for use in uses if use.get("mode") == "include"}
    always = (((0, DAY),),) * 7
    return {
        name: Calendar(name, UTC_ZONE, weekly=always) if name in kept_to else Calendar(name, UTC_ZONE) for name in names
    }
