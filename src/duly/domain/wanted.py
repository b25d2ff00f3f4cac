"""Descriptions for error messages: the values that a shape accepts, why a value does not fit, and the nearest known
name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import inspect

from duly.domain.runs.run import NOT_BLANK
from duly.domain.triggers.errors import nearest

_BLANK = f"matching regex {NOT_BLANK!r}"
_EMPTY = "`str` of length >= 1"
_CHOICES_MAX = 30
_PLAIN: dict[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.NoneType: "null",
    inspect.DateTimeType: "a moment with its offset, such as 2026-01-31T09:00:00Z",
    inspect.UUIDType: "an id, such as 0190163d-8694-739b-aea5-966c26f8ad91",
    inspect.StructType: "an object",
}


def describe_mismatch(quoted: str, what: str, remedy: str = "") -> str:
    """Explain why a value does not fit, from the decoder's message; `quoted` is the value as it may be repeated."""
    if what.endswith(_BLANK):
        return f"{quoted or 'the value'} is blank; write at least one visible character"
    if what.endswith(_EMPTY):
        return f"{quoted if quoted.startswith('the ') else 'the value'} is empty; write at least one character"
    if "matching regex" in what:  # A pattern is for programs; the remedy has an example for people.
        return f"{quoted or 'the value'} is not of the expected form{remedy}"
    return f"{quoted} is invalid: {lower_first(what)}{remedy}" if quoted else f"{lower_first(what)}{remedy}"


def lower_first(what: str) -> str:
    """Write the decoder's sentence so that it can stand inside one of ours."""
    return f"{what[:1].lower()}{what[1:]}"


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Suggest the nearest known name, or list the known names."""
    names = list(known)
    near = nearest(name, names)
    return f"did you mean {near}?" if near else f"known are {', '.join(names)}" if names else "none is known here"


def describe_shape(shape: Any) -> str:
    """Describe the values of a shape; empty where any value fits."""
    return describe_kinds([inspect.type_info(shape)])


def describe_kinds(kinds: Iterable[inspect.Type]) -> str:
    """Describe the values of any of these kinds; empty where any value fits."""
    given = list(kinds)
    every = flatten_kinds(given)
    words = [text for kind in every if (text := _word(kind))]
    choices = [str(value) for kind in every for value in _choices(kind)]
    if choices:
        words.insert(0, one_of(choices))
    # For an optional value, describe the value: that it may be left out does not help.
    named = [word for word in dict.fromkeys(words) if word != _PLAIN[inspect.NoneType]] or words
    return " or ".join(named) + (_example(given) if named and not choices else "")


def one_of(choices: Sequence[str]) -> str:
    """List the choices."""
    named = ", ".join(choices[:_CHOICES_MAX])
    return named if len(choices) == 1 else f"one of {named}{', …' if len(choices) > _CHOICES_MAX else ''}"


def flatten_kinds(kinds: Iterable[inspect.Type]) -> list[inspect.Type]:
    """Return the kinds behind unions and annotations."""
    found: list[inspect.Type] = []
    for kind in kinds:
        inner = kind.type if isinstance(kind, inspect.Metadata) else kind
        if isinstance(inner, inspect.Metadata | inspect.UnionType):
            found += flatten_kinds(inner.types if isinstance(inner, inspect.UnionType) else [inner])
        else:
            found.append(inner)
    return found


def _choices(kind: inspect.Type) -> Sequence[Any]:
    if isinstance(kind, inspect.LiteralType):
        return kind.values
    return [one.value for one in kind.cls] if isinstance(kind, inspect.EnumType) else []


def _word(kind: inspect.Type) -> str:
    match kind:
        case inspect.IntType():
            return f"a whole number{_bounds(kind)}"
        case inspect.FloatType():
            return f"a number{_bounds(kind)}"
        case inspect.StrType():
            return f"text{_lengths(kind.min_length, kind.max_length, 'character')}"
        case inspect.ListType() | inspect.VarTupleType():
            return f"a list{_lengths(kind.min_length, kind.max_length, 'item')}"
        case inspect.DictType():
            return f"an object{_lengths(kind.min_length, kind.max_length, 'field')}"
    return _PLAIN.get(type(kind), "")


def _bounds(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge} to {kind.le}"
    words = (("of at least", kind.ge), ("above", kind.gt), ("of at most", kind.le), ("below", kind.lt))
    named = [f"{word} {value}" for word, value in words if value is not None]
    return f" {' and '.join(named)}" if named else ""


def _lengths(least: int | None, most: int | None, unit: str) -> str:
    if most is not None:
        return f" of {least or 0} to {most} {unit}s"
    return f" of at least {least} {unit}{'s' * (least != 1)}" if least else ""


def _example(kinds: Iterable[inspect.Type]) -> str:
    found = next(_examples(kinds), None)
    return "" if found is None else f", such as {found}"


def _examples(kinds: Iterable[inspect.Type]) -> Iterator[Any]:
    for kind in kinds:
        if isinstance(kind, inspect.Metadata):
            yield from (kind.extra_json_schema or {}).get("examples", [])[:1]
            yield from _examples([kind.type])
        elif isinstance(kind, inspect.UnionType):
            yield from _examples(kind.types)
