"""Errors of values that do not fit their shape: where, what, and what is allowed there.

The decoder's message names the place, though not the key of a mapping on the way to it, and not the value. Both are
found here, from the input, after it has been refused. A value is repeated only in part, and not at all where it may be
a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import inspect

from duly.domain.problems import pointer_of
from duly.domain.targets.masking import is_secret
from duly.domain.triggers.errors import shown
from duly.domain.wanted import describe_kinds, describe_mismatch, flatten_kinds, lower_first, one_of, suggest_name

Read = Callable[[Any], object]
Steps = Sequence[str]

UNKNOWN = msgspec.UNSET  # the input is unknown
_PLACE = re.compile(r"^(?P<what>.*?)(?: - at (?P<is_key>`key` in )?`(?P<place>\$.*)`)?$", re.DOTALL)
_STRANGE = re.compile(r"Object contains unknown field `(.*)`$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`$", re.DOTALL)
_CHOICE = re.compile(r"Invalid (?:enum )?value\b")
_MISFIT = re.compile(r"(?:Expected|Invalid) ")
_LENGTH = re.compile(r"of length [<>]= ")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_SOME_KEY = "..."
# Keys that name something, and grant nothing.
_OPEN_KEYS = frozenset({("concurrency", "key"), ("rate_limit", "key")})


class Wrong(msgspec.Struct, frozen=True):
    """One error: its place, as a JSON pointer into the body or a parameter's name, and a sentence."""

    pointer: str
    message: str


def wrong_with(message: str, shape: Any, given: Any, read: Read) -> Wrong:
    """Describe a decoder's error in words; `read` decodes the input, or part of it, again."""
    match = _PLACE.match(message)
    assert match is not None
    fails = _same_failure(message, read)
    steps = [step or index for step, index in _STEP.findall(match["place"] or "")]
    if match["is_key"]:
        steps.append(_SOME_KEY)
    named = _named(steps, given, fails)
    what = match["what"]
    if strange := _STRANGE.match(what):
        return _strange(named, strange[1], shape)
    if missing := _MISSING.match(what):
        return Wrong(pointer_of([*named, missing[1]]), f"is missing{_remedy(_kinds(shape, [*named, missing[1]]))}")
    if match["is_key"]:
        return Wrong(pointer_of(named), describe_mismatch("the name", what))
    if not _MISFIT.match(what):  # a sentence of our own
        return Wrong(pointer_of(named), lower_first(what))
    return Wrong(pointer_of(named), _mismatch(what, named, shape, _at(given, named)))


def _strange(steps: Steps, name: str, shape: Any) -> Wrong:
    place, known = pointer_of([*steps, name]), _fields(shape, steps)
    if name in known:  # another of the possible shapes has it
        return Wrong(place, "is not a field of this type; leave it out, or change type")
    return Wrong(place, f"is not a field here; {suggest_name(name, known)}")


def _mismatch(what: str, steps: Steps, shape: Any, value: Any) -> str:
    kinds = _kinds(shape, steps)
    if _CHOICE.match(what):
        choices = _tags(shape, steps)
        remedy = f"; give {one_of(choices)}" if choices else _remedy(kinds)
        return f"{_reported(value, steps, what) or 'the value'} is unknown{remedy}"
    return describe_mismatch(_reported(value, steps, what), what, _remedy(kinds))


def _remedy(kinds: Iterable[inspect.Type]) -> str:
    words = describe_kinds(kinds)
    return f"; give {words}" if words else "; give it"


def _reported(value: Any, steps: Steps, what: str) -> str:
    """Repeat a value, as far as allowed: never a possible secret, nor its parts."""
    if value is UNKNOWN:
        return ""
    if isinstance(value, Mapping | list):
        size = f"with {len(value)} {'field' if isinstance(value, Mapping) else 'item'}{'s' * (len(value) != 1)}"
        return f"{'an object' if isinstance(value, Mapping) else 'a list'} {size}"
    if isinstance(value, str) and _LENGTH.search(what):
        return f"a text of {len(value)} characters"
    if _may_be_secret(steps):
        return "the value, which is not repeated here,"
    return msgspec.json.encode(value).decode() if value is None or isinstance(value, bool) else shown(value)


def _may_be_secret(steps: Steps) -> bool:
    names = [step for step in steps if not step.isdigit()]
    return bool(names) and is_secret(names[-1]) and tuple(names[-2:]) not in _OPEN_KEYS


def _same_failure(message: str, read: Read) -> Callable[[Any], bool]:
    def fails(given: Any) -> bool:
        try:
            read(given)
        except msgspec.ValidationError as error:
            return str(error) == message
        except (msgspec.MsgspecError, RecursionError, TypeError):
            pass
        return False

    return fails


def _named(steps: Steps, given: Any, fails: Callable[[Any], bool]) -> list[str]:
    """Return the path with the keys of mappings, which a decoder's message leaves out."""
    found: list[str] = []
    for step in steps:
        name = step
        if step == _SOME_KEY and isinstance(mapping := _at(given, found), Mapping):
            given, name = _key_at_fault(given, found, mapping, fails)
        found.append(name)
    return found


def _key_at_fault(
    given: Any, steps: Steps, mapping: Mapping[str, Any], fails: Callable[[Any], bool]
) -> tuple[Any, str]:
    """Return the first key without whose value it would not have failed so; by halves, so that the whole is read twice
    at most.
    """
    keys = list(mapping)
    while len(keys) > 1:
        half = keys[: len(keys) // 2]
        keys = half if fails(_with(given, steps, {key: mapping[key] for key in half})) else keys[len(half) :]
    narrowed = _with(given, steps, {key: mapping[key] for key in keys})
    return (narrowed, keys[0]) if keys and fails(narrowed) else (given, _SOME_KEY)


def _with(given: Any, steps: Steps, part: Any) -> Any:
    """Return the input with another part at a place."""
    if not steps:
        return part
    step, rest = steps[0], steps[1:]
    if isinstance(given, list):
        index = int(step)
        return [*given[:index], _with(given[index], rest, part), *given[index + 1 :]]
    return {**given, step: _with(given[step], rest, part)}


def _at(given: Any, steps: Steps) -> Any:
    """Return the value at a place; UNKNOWN where there is none."""
    for step in steps:
        try:
            given = given[int(step)] if isinstance(given, list) else given[step]
        except (LookupError, TypeError, ValueError):
            return UNKNOWN
    return given


@lru_cache(maxsize=256)
def _whole(shape: Hashable) -> inspect.Type:
    """Analyse a shape, cached: it takes milliseconds, and each line of a batch may be refused."""
    return inspect.type_info(shape)


def _kinds(shape: Any, steps: Steps) -> list[inspect.Type]:
    """Return the types allowed at a place; for a union, of all its members."""
    kinds = [_whole(shape)]
    for step in steps:
        kinds = [inner for kind in kinds for inner in _inner(kind, step)]
    return kinds


def _fields(shape: Any, steps: Steps) -> list[str]:
    """Return the fields allowed at a place."""
    structs = [kind for kind in flatten_kinds(_kinds(shape, steps)) if isinstance(kind, inspect.StructType)]
    return sorted({field.encode_name for kind in structs for field in kind.fields})


def _tags(shape: Any, steps: Steps) -> list[str]:
    """Return the tags of a union, if the place is its tag."""
    if not steps:
        return []
    structs = [kind for kind in flatten_kinds(_kinds(shape, steps[:-1])) if isinstance(kind, inspect.StructType)]
    return sorted({str(kind.tag) for kind in structs if kind.tag_field == steps[-1]})


def _inner(kind: inspect.Type, step: str) -> list[inspect.Type]:
    found: list[inspect.Type] = []
    for one in flatten_kinds([kind]):
        if isinstance(one, inspect.StructType):
            found += [field.type for field in one.fields if field.encode_name == step]
        elif isinstance(one, inspect.ListType | inspect.VarTupleType):
            found.append(one.item_type)
        elif isinstance(one, inspect.DictType):
            found.append(one.value_type)
    return found
