"""Compilation of a trigger's JSON. Unknown keys are refused, and all problems are reported at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Literal, overload

import msgspec

from duly.domain.errors import InvalidSchedule
from duly.domain.fields import Spec
from duly.domain.jobs.job import check_delay
from duly.domain.triggers import periods, spec, stamps
from duly.domain.triggers.any_of import MEMBERS_MAX, MEMBERS_MIN, AnyOf
from duly.domain.triggers.at import At
from duly.domain.triggers.compiled import Compiled
from duly.domain.triggers.cron.expression import compile_cron
from duly.domain.triggers.elapsed import FixedDelay, FixedRate
from duly.domain.triggers.english import grammar
from duly.domain.triggers.errors import TriggerError, check_length, nearest, shown, together
from duly.domain.triggers.iso8601 import compile_iso
from duly.domain.triggers.moments import EPOCH, second_of
from duly.domain.triggers.rrule.rule import compile_rrule
from duly.domain.triggers.zones import zones
from duly.domain.triggers.zones.zones import UTC_ZONE, Zone

_TEXT_CHARACTERS_MAX = 256
_EVERY_SECONDS_MAX = 2**31 - 1
_SYNONYMS = {"timezone": "tz", "time_zone": "tz", "zone": "tz", "cron": "expr", "expression": "expr", "until": "end"}


class Context(msgspec.Struct, frozen=True):
    """The context of a trigger: the job for `H`, and the moment of creation for relative times."""

    job_id: str | None
    now: datetime

    @property
    def creation(self) -> int:
        """The moment of creation, rounded up to a second."""
        return second_of(self.now) + (1 if self.now.microsecond else 0)


def compile_trigger(trigger: object, *, job_id: str | None, now: datetime) -> Compiled:
    """Compile a trigger. Raises TriggerError, which carries every problem."""
    return _compile(trigger, Context(job_id, now))


def _compile(trigger: object, context: Context) -> Compiled:
    shape = check_object(trigger, "trigger")
    kind = shape.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise _unknown_type(kind)
    struct, build = _TYPES[kind]
    check_keys(shape, struct, "type")
    return build(shape, context)


def check_object(value: object, what: str) -> Mapping[str, Any]:
    """Check that a value is a JSON object. Raises TriggerError."""
    if not isinstance(value, Mapping):
        raise TriggerError("TRIGGER_VALUE", f"{what} {shown(value)} is not an object with keys", "")
    return value


def check_keys(shape: Mapping[str, Any], kind: type[Spec], *named: str) -> None:
    """Raise TriggerError for every unknown or missing key, given the fields of a struct and `named` ones."""
    required, optional = _keys(kind)
    required = (*named, *required)
    known = (*required, *optional)
    errors = [_unknown_key(key, known) for key in shape if key not in known]
    errors += [
        TriggerError("TRIGGER_KEY", f"{key} is missing; give it", key) for key in required if shape.get(key) is None
    ]
    if errors:
        raise together(errors)


def check_part(value: object, field: str, kind: type[Spec]) -> Mapping[str, Any]:
    """Check the object at a field, with the keys of a struct. Raises TriggerError."""
    if not isinstance(value, Mapping):
        keys = ", ".join(part for parts in _keys(kind) for part in parts)
        raise TriggerError("TRIGGER_VALUE", f"{field} {shown(value)} is not an object with keys: {keys}", field)
    try:
        check_keys(value, kind)
    except TriggerError as error:
        raise error.within(field) from None
    return value


@cache
def _keys(kind: type[Spec]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the required and the optional keys; cached, because reflection is slow."""
    fields = msgspec.structs.fields(kind)
    required, optional = ([one.encode_name for one in fields if one.required is must] for must in (True, False))
    return tuple(required), tuple(optional)


def _unknown_key(key: object, known: Sequence[str]) -> TriggerError:
    meant = None
    if isinstance(key, str):
        meant = _SYNONYMS[key] if _SYNONYMS.get(key) in known else nearest(key, known)
    remedy = f"did you mean {meant}?" if meant else f"known are {', '.join(known)}"
    name = key[:60] if isinstance(key, str) else ""
    return TriggerError("TRIGGER_KEY", f"{shown(key)} is not a key here; {remedy}", name, meant)


def _unknown_type(kind: object) -> TriggerError:
    meant = nearest(kind, _TYPES) if isinstance(kind, str) else None
    remedy = f"did you mean {meant}?" if meant else f"use one of {', '.join(_TYPES)}"
    return TriggerError("TRIGGER_TYPE", f"type {shown(kind)} is not a trigger type; {remedy}", "type", meant)


@overload
def string(shape: Mapping[str, Any], key: str) -> str: ...
@overload
def string(shape: Mapping[str, Any], key: str, *, optional: Literal[True]) -> str | None: ...
def string(shape: Mapping[str, Any], key: str, *, optional: bool = False) -> str | None:
    """Check that a value is text. Raises TriggerError."""
    value = shape.get(key)
    if value is None and optional:
        return None
    if not isinstance(value, str):
        raise TriggerError("TRIGGER_VALUE", f"{key} {shown(value)} is not text; put it in quotes", key)
    return value


def _zone(shape: Mapping[str, Any]) -> Zone | None:
    return None if shape.get("tz") is None else zones.find(shape["tz"])


def _at(shape: Mapping[str, Any], context: Context) -> Compiled:
    zone, at, delay = _zone(shape), shape.get("at"), shape.get("delay")
    if at is not None and delay is not None:
        raise TriggerError("TRIGGER_KEY", "at and delay are both triggers; give one of them", "delay")
    if at is None and delay is None:
        raise TriggerError("TRIGGER_KEY", "at is missing; give it, or delay", "at")
    if at is not None:
        return At(stamps.read_fine(at, "at", zone), zone)
    return At((context.now + _delay(delay) - EPOCH) // timedelta(microseconds=1), zone)


def _delay(value: Any) -> timedelta:
    """Read the delay of a one-shot after its creation. Raises TriggerError."""
    try:
        return check_delay(value)
    except InvalidSchedule as error:
        raise TriggerError("DURATION_SYNTAX", str(error), "delay", "PT30S") from None


def _cron(shape: Mapping[str, Any], context: Context) -> Compiled:
    return compile_cron(string(shape, "expr"), string(shape, "tz", optional=True), context.job_id)


def _interval(shape: Mapping[str, Any], context: Context) -> Compiled:
    every = periods.read_clock(shape["every"], "every")
    if every > _EVERY_SECONDS_MAX:
        raise TriggerError("LIMIT", f"every {shown(shape['every'])} is longer than 68 years; shorten it", "every")
    zone, anchor = _zone(shape), shape.get("anchor")
    start = context.creation if anchor is None else stamps.read(anchor, "anchor", zone)
    mode = shape.get("mode")
    if mode not in (None, "fixed_rate", "fixed_delay"):
        message = f"mode {shown(mode)} is unknown; use fixed_rate or fixed_delay"
        raise TriggerError("TRIGGER_VALUE", message, "mode", "fixed_rate")
    return (FixedDelay if mode == "fixed_delay" else FixedRate)(every, start, zone=zone)


def _iso8601(shape: Mapping[str, Any], context: Context) -> Compiled:
    written = string(shape, "text")
    check_length(written, "text", _TEXT_CHARACTERS_MAX)
    return compile_iso(written, _zone(shape))


def _rrule(shape: Mapping[str, Any], context: Context) -> Compiled:
    exdates = shape.get("exdates") or []
    if not isinstance(exdates, Sequence) or isinstance(exdates, str):
        raise TriggerError("TRIGGER_VALUE", f"exdates {shown(exdates)} is not a list; write it in brackets", "exdates")
    return compile_rrule(string(shape, "rrule"), shape["dtstart"], _zone(shape), exdates)


def _text(shape: Mapping[str, Any], context: Context) -> Compiled:
    words = string(shape, "text")
    compiled = _compile(grammar.parse(words, _zone(shape) or UTC_ZONE, context.creation), context)
    compiled.words = words
    return compiled


def _any(shape: Mapping[str, Any], context: Context) -> Compiled:
    members = shape["of"]
    if not isinstance(members, Sequence) or isinstance(members, str):
        raise TriggerError("TRIGGER_VALUE", f"of {shown(members)} is not a list of triggers", "of")
    if not MEMBERS_MIN <= len(members) <= MEMBERS_MAX:
        message = f"of has {len(members)} members; {MEMBERS_MIN} to {MEMBERS_MAX} are allowed"
        raise TriggerError("LIMIT", message, "of")
    compiled, errors = [], []
    for index, member in enumerate(members):
        try:
            compiled.append(_member(member, context))
        except TriggerError as error:
            errors.append(error.within(f"of[{index}]"))
    if errors:
        raise together(errors)
    return AnyOf(compiled)


def _member(member: object, context: Context) -> Compiled:
    if isinstance(member, Mapping) and member.get("type") == "any":
        raise TriggerError("TRIGGER_TYPE", "type any inside any; put all members into one list", "type")
    compiled = _compile(member, context)
    if compiled.is_estimate:
        message = "mode fixed_delay counts from the end of its own runs, so it cannot be part of any; use fixed_rate"
        raise TriggerError("TRIGGER_TYPE", message, "mode", "fixed_rate")
    return compiled


_Build = Callable[[Mapping[str, Any], Context], Compiled]
_TYPES: dict[str, tuple[type[Spec], _Build]] = {
    "at": (spec.TriggerAt, _at),
    "cron": (spec.TriggerCron, _cron),
    "interval": (spec.TriggerInterval, _interval),
    "iso8601": (spec.TriggerIso8601, _iso8601),
    "rrule": (spec.TriggerRrule, _rrule),
    "text": (spec.TriggerText, _text),
    "any": (spec.TriggerAny, _any),
}
