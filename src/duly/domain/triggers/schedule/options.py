"""Options of a schedule, combined into the shape that schedules are compiled from.

Options that contradict each other are refused here, with the remedy; their values are checked when the shape is
compiled. Each interface spells its options in its own way, so it passes its spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from duly.domain.duration import parse, to_iso
from duly.domain.errors import InvalidOption
from duly.domain.jobs.job import check_moment
from duly.domain.triggers import spec
from duly.domain.triggers.calendars import Calendar
from duly.domain.triggers.interval import parse_every
from duly.domain.triggers.on_event import is_on_event
from duly.domain.triggers.schedule.reading import check_schedule
from duly.domain.triggers.schedule.schedules import Schedule
from duly.domain.triggers.schedule.timing import calendars_in, every_shape
from duly.domain.triggers.zones.zones import UTC_ZONE

KINDS = ("every", "cron", "when", "schedule")
PARTS = tuple(name for name in spec.Schedule.__struct_fields__ if name != "trigger")
OPTIONS = (*KINDS, "at", "tz", "mode", *PARTS)
# Fields that a trigger of another type takes over from the one before it.
_KEPT = {"every": "mode", "cron": "tz", "when": "tz"}
# Triggers with a zone, which can be moved to another.
_ZONED = ("cron", "text", "rrule", "iso8601", "interval")

GivenOptions = Mapping[str, Any]
Spell = Callable[[str], str]
Shape = dict[str, Any]


def compose(given: GivenOptions, spell: Spell) -> Shape | None:
    """Return the shape of a schedule from options; None when they name none. Raises InvalidOption, InvalidSchedule."""
    kind = _kind(given, spell)
    if kind is None:
        _refuse_strays(given, ("tz", "mode", *PARTS), spell)
        return None
    return _with_parts(_base(kind, given, spell), given, spell)


def amend(shape: Mapping[str, Any], given: GivenOptions, spell: Spell) -> Shape:
    """Return a shape with only the given parts changed; None removes a part. Raises InvalidOption, InvalidSchedule."""
    kind = _kind(given, spell)
    if kind is None and is_on_event(shape):
        _refuse(
            given, OPTIONS, lambda key: f"{spell(key)} is for schedules, and this job waits for events; leave it out"
        )
        return dict(shape)
    if kind == "schedule":
        return _with_parts(_base(kind, given, spell), given, spell)
    trigger = _amended_trigger(shape.get("trigger", {}), given, spell, kind)
    parts = {key: read_part(key, given[key]) for key in PARTS if key in given}
    changed = {**({} if is_on_event(shape) else shape), "trigger": trigger, **parts}
    return {key: value for key, value in changed.items() if value is not None}


def requested_shape(stored: str | None, every_seconds: int | None) -> Shape:
    """Return the shape in which a stored schedule was requested."""
    if stored is None:
        assert every_seconds is not None
        return every_shape(every_seconds)
    shape: Shape = msgspec.json.decode(stored)
    if is_on_event(shape):
        return shape
    requested = shape.pop("requested", shape["trigger"])
    return {**shape, "trigger": requested}


def check(shape: Mapping[str, Any]) -> Schedule:
    """Refuse everything that can be refused without the database, which alone knows the calendars. Raises TriggerError."""
    return check_schedule(shape, {name: Calendar(name, UTC_ZONE) for name in calendars_in(shape)})


def _kind(given: GivenOptions, spell: Spell) -> str | None:
    kinds = [kind for kind in KINDS if given.get(kind) is not None]
    if len(kinds) > 1:
        raise InvalidOption(f"{spell(kinds[0])} and {spell(kinds[1])} are both triggers; give one of them")
    return kinds[0] if kinds else None


def _base(kind: str, given: GivenOptions, spell: Spell) -> Shape:
    match kind:
        case "schedule":
            _refuse(given, ("at", "tz", "mode"), lambda key: f"{spell(key)} goes into the trigger of {spell(kind)}")
            return _object(given[kind], spell(kind))
        case "every":
            return _every(given)
    _refuse(
        given,
        ("at",),
        lambda key: f"{spell(key)} goes with {spell('every')} or alone; with {spell(kind)}, give {spell('start')}",
    )
    _refuse(
        given,
        ("mode",),
        lambda key: f"{spell(key)} is for {spell('every')} only; leave it out",
    )
    words = {"type": "cron", "expr": given[kind]} if kind == "cron" else {"type": "text", "text": given[kind]}
    return {"trigger": words if given.get("tz") is None else {**words, "tz": given["tz"]}}


def _every(given: GivenOptions) -> Shape:
    at = given.get("at")
    anchor = None if at is None else check_moment(at, "at")
    shape = every_shape(int(parse_every(given["every"]).total_seconds()), anchor)
    return {"trigger": shape["trigger"] | {key: given[key] for key in ("mode", "tz") if given.get(key) is not None}}


def _with_parts(shape: Shape, given: GivenOptions, spell: Spell) -> Shape:
    present = [key for key in PARTS if given.get(key) is not None]
    for key in present:
        if shape.get(key) is not None:
            raise InvalidOption(f"{spell(key)} is in {spell('schedule')} already; give it once")
    return shape | {key: read_part(key, given[key]) for key in present}


def _amended_trigger(
    trigger: Mapping[str, Any], given: GivenOptions, spell: Spell, kind: str | None
) -> Mapping[str, Any]:
    """Change a trigger: to one that keeps its zone or its mode, or only these."""
    if kind is not None:
        kept = ("mode", "tz") if trigger["type"] == "interval" and kind == "every" else (_KEPT[kind],)
        return {**_kept(trigger, kept), **_base(kind, given, spell)["trigger"]}
    if trigger["type"] == "at" and given.get("at") is not None:
        trigger = {**_kept(trigger, ("type", "tz")), "at": check_moment(given["at"], "at").isoformat()}
    else:
        _refuse(given, ("at",), lambda key: f"{spell(key)} goes with {spell('every')}; give both")
    changes = {key: given[key] for key in ("tz", "mode") if given.get(key) is not None}
    if "tz" in changes and trigger["type"] not in _ZONED:
        raise InvalidOption(f"{spell('tz')} is for a schedule in local time; this one is of type {trigger['type']}")
    if "mode" in changes and trigger["type"] != "interval":
        raise InvalidOption(f"{spell('mode')} is for {spell('every')}; this schedule is of type {trigger['type']}")
    return {**trigger, **changes}


def _kept(trigger: Mapping[str, Any], keys: Iterable[str]) -> Mapping[str, Any]:
    return {key: trigger[key] for key in keys if trigger.get(key) is not None}


def read_part(key: str, value: Any) -> Any:
    """Read a part of a schedule that has a short form, such as a policy by its name. Raises InvalidSchedule."""
    match key, value:
        case (("start" | "end"), datetime()):
            return check_moment(value, key).isoformat()
        case "jitter", timedelta() | int() | float() if not isinstance(value, bool):
            return {"max": to_iso(parse(value, key))}
        case "jitter", str():
            return {"max": value}
        case (("misfire" | "overlap"), str()):
            return {"policy": value}
        case "calendars", _ if isinstance(value, Sequence) and not isinstance(value, str):
            return [{"name": use} if isinstance(use, str) else use for use in value]
    return value


def _object(value: Any, what: str) -> Shape:
    if not isinstance(value, Mapping):
        raise InvalidOption(
            f'{what} {value!r} is not the shape of a schedule, such as {{"trigger": {{"type": "cron", …}}}}'
        )
    return dict(value)


def _refuse(given: GivenOptions, keys: Iterable[str], why: Spell) -> None:
    for key in keys:
        if given.get(key) is not None:
            raise InvalidOption(why(key))


def _refuse_strays(given: GivenOptions, keys: Iterable[str], spell: Spell) -> None:
    kinds = f"{', '.join(map(spell, KINDS[:-1]))} or {spell(KINDS[-1])}"
    _refuse(given, keys, lambda key: f"{spell(key)} belongs to a schedule; give {kinds} as well")
