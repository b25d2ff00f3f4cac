"""Schedules in a file: their short forms, expanded into the shape that schedules are compiled from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from duly.domain.errors import Refused
from duly.domain.gathering import unknown_key
from duly.domain.problems import Path, Problem, path_of
from duly.domain.triggers.errors import TriggerError, shown
from duly.domain.triggers.schedule.options import PARTS, read_part

# A short form: the trigger type, the key that it fills, and the keys allowed beside it.
SHORT: Mapping[str, tuple[str, str, Sequence[str]]] = {
    "every": ("interval", "every", ("anchor", "mode", "tz")),
    "cron": ("cron", "expr", ("tz",)),
    "when": ("text", "text", ("tz",)),
    "at": ("at", "at", ("tz",)),
    "delay": ("at", "delay", ("tz",)),
}
KEYS = ("trigger", *SHORT, "anchor", "mode", "tz", *PARTS)
# Triggers with a zone, to which a file's default zone applies.
_ZONED = ("at", "cron", "text", "rrule", "iso8601")


def expanded(given: object, tz: str | None, path: Path, problems: list[Problem]) -> dict[str, Any] | None:
    """Expand a schedule, or return None and add to the problems. `tz` is the default zone."""
    if isinstance(given, str):
        given = {"when": given}
    if not isinstance(given, Mapping):
        problems.append(Problem(path, f"{shown(given)} is not a schedule; write {{cron: …}}, {{every: …}} or words"))
        return None
    said = {key: value for key, value in given.items() if value is not None}
    before = len(problems)
    problems.extend(unknown_key(key, KEYS, path) for key in said if key not in KEYS)
    problems.extend(_contradictions(said, path))
    if len(problems) > before:
        return None
    kind = kind_of(said)
    trigger = said["trigger"] if kind == "trigger" else _trigger(kind, said)
    try:
        return {"trigger": _zoned(trigger, tz)} | {key: read_part(key, said[key]) for key in PARTS if key in said}
    except Refused as error:
        problems.append(Problem(path, str(error)))
        return None


def kind_of(given: object) -> str:
    """Return the key of a schedule that says when it fires; plain text is English."""
    kinds = [kind for kind in ("trigger", *SHORT) if isinstance(given, Mapping) and given.get(kind) is not None]
    return kinds[0] if kinds else "when"


def placed(kind: str, error: TriggerError) -> list[tuple[Path, str]]:
    """Return the problems of a schedule, with positions in the source text."""
    return [(_path_of(kind, one.field), _described(one)) for one in error.errors]


def _contradictions(said: Mapping[str, Any], path: Path) -> list[Problem]:
    kinds = [kind for kind in ("trigger", *SHORT) if kind in said]
    if not kinds:
        return [Problem(path, f"the schedule has no trigger; give {', '.join(SHORT)} or trigger")]
    if len(kinds) > 1:
        return [Problem((*path, kinds[1]), f"{kinds[0]} and {kinds[1]} are both triggers; keep one")]
    [kind] = kinds
    beside = () if kind == "trigger" else SHORT[kind][2]
    strays = [stray for stray in ("anchor", "mode", "tz") if stray in said and stray not in beside]
    return [Problem((*path, stray), _stray(stray, kind)) for stray in strays]


def _stray(stray: str, kind: str) -> str:
    if kind == "trigger":
        return f"{stray} goes into the trigger"
    others = [other for other, (_, _, keys) in SHORT.items() if stray in keys]
    return f"{stray} is for {', '.join(others)}, not for {kind}; remove it"


def _trigger(kind: str, said: Mapping[str, Any]) -> dict[str, Any]:
    name, key, beside = SHORT[kind]
    return {"type": name, key: said[kind]} | {key: said[key] for key in beside if key in said}


def _zoned(trigger: Any, tz: str | None) -> Any:
    """Add the file's zone to a trigger without one."""
    if tz is None or not isinstance(trigger, Mapping):
        return trigger
    if trigger.get("type") == "any" and isinstance(trigger.get("of"), list):
        return {**trigger, "of": [_zoned(member, tz) for member in trigger["of"]]}
    names_zone = trigger.get("tz") is not None or "TZ=" in str(trigger.get("expr"))
    return trigger if names_zone or trigger.get("type") not in _ZONED else {**trigger, "tz": tz}


def _described(error: TriggerError) -> str:
    return error.message if not error.hint or error.hint in error.message else f"{error.message}; try {error.hint}"


def _path_of(kind: str, field: str) -> Path:
    """Return the position of a field of the trigger in the source text."""
    steps = path_of(field)
    if kind == "trigger" or steps[:1] != ("trigger",):
        return steps
    name = SHORT[kind][1]
    return (kind,) if steps[1:2] in ((name,), ()) else steps[1:]
