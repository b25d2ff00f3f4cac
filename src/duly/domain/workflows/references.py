"""References in a payload: `{"$result": "extract"}` stands for the result of a node, `{"$error": "extract"}` for its
error, and `{"$item": true}` for the item of a map.

They are resolved when a run is handed out; the row has only the names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, assert_never

import msgspec

from duly.domain.triggers.errors import shown

RESULT = "$result"
ERROR = "$error"
ITEM = "$item"
HANDED_BYTES_MAX = 1_048_576  # of other nodes' results, in one run's payload
_QUOTED = (f'"{RESULT}"', f'"{ERROR}"', f'"{ITEM}"')
_CLASS = re.compile(r"([A-Z]\w*)(?:: (.*))?", re.DOTALL)  # as an attempt's reason names an exception

Refuse = Callable[[str], NoReturn]
Path = tuple[str | int, ...]


class Reference(msgspec.Struct, frozen=True):
    """The result of a node, or the part of it at a path."""

    node: str
    path: Path = ()


class Fault(msgspec.Struct, frozen=True):
    """The error of a node, or the part of it at a path."""

    node: str
    path: Path = ()


class Item(msgspec.Struct, frozen=True):
    """The item of a map's run, or a part of it."""

    path: Path = ()


Use = Reference | Fault | Item


class Unresolved(Exception):
    """A reference to nothing, or to more than a run may be given."""


def uses_in(payload: str, refuse: Refuse) -> list[Use]:
    """Find all references in a payload, JSON as text."""
    return list(_uses(msgspec.json.decode(payload), refuse)) if has_references(payload) else []


def has_references(payload: str | None) -> bool:
    """Return whether there may be references in a payload; text that looks like one counts."""
    return payload is not None and any(quoted in payload for quoted in _QUOTED)


def read_reference(value: Mapping[str, Any], refuse: Refuse) -> Use | None:
    """Read a mapping as a reference; None when it is none."""
    if not any(name in value for name in (RESULT, ERROR, ITEM)):
        return None
    path = value.get("path", [])
    if not isinstance(path, list) or not all(
        isinstance(step, str | int) and not isinstance(step, bool) for step in path
    ):
        refuse(f"path {shown(path)} is not a list of names and numbers")
    match value:
        case {"$result": str(node), **rest} if rest.keys() <= {"path"}:
            return Reference(node, tuple(path))
        case {"$error": str(node), **rest} if rest.keys() <= {"path"}:
            return Fault(node, tuple(path))
        case {"$item": True, **rest} if rest.keys() <= {"path"}:
            return Item(tuple(path))
    return refuse(
        f'{shown(value)} is not a reference; write {{"$result": "NODE", "path": […]}}, {{"$error": "NODE"}} or {{"$item": true}}'
    )


def fault_of(state: str, reason: str | None, attempts: int) -> dict[str, Any]:
    """Describe the error of an ended node: its class if there is one, its message, and the number of attempts."""
    found = _CLASS.fullmatch(reason or "")
    kind, message = (found[1], found[2] or "") if found else (None, reason or "")
    return {"state": state, "class": kind, "message": message, "attempts": attempts}


def resolved(
    payload: str,
    results: Mapping[str, Any],
    item: Any,
    faults: Mapping[str, Any] | None = None,
    missing: Mapping[str, str] | None = None,
) -> str:
    """Insert results and errors where a payload refers to them; a node without an error has null.

    `missing` says why a result is not stored. Raises Unresolved.
    """
    known = _Known(results, faults or {}, item, missing or {})
    return msgspec.json.encode(_resolved(msgspec.json.decode(payload), known)).decode()


class _Known(msgspec.Struct, frozen=True):
    results: Mapping[str, Any]
    faults: Mapping[str, Any]
    item: Any
    missing: Mapping[str, str]


def part_of(value: Any, path: Path, what: str) -> Any:
    """Follow a path into a value. Raises Unresolved."""
    for step in path:
        try:
            value = _at(value, step)
        except (KeyError, IndexError):
            raise Unresolved(f"{what} has nothing at {msgspec.json.encode(path).decode()}") from None
    return value


def _at(value: Any, step: str | int) -> Any:
    match value, step:
        case dict(), str():
            return value[step]
        case list(), int():
            return value[step]
    raise KeyError(step)


def _uses(value: Any, refuse: Refuse) -> Iterator[Use]:
    if isinstance(value, dict):
        if (use := read_reference(value, refuse)) is not None:
            yield use
            return
        for each in value.values():
            yield from _uses(each, refuse)
    elif isinstance(value, list):
        for each in value:
            yield from _uses(each, refuse)


def _resolved(value: Any, known: _Known) -> Any:
    if isinstance(value, dict):
        use = read_reference(value, _cannot_resolve)
        return {name: _resolved(each, known) for name, each in value.items()} if use is None else _value_of(use, known)
    if isinstance(value, list):
        return [_resolved(each, known) for each in value]
    return value


def _value_of(use: Use, known: _Known) -> Any:
    match use:
        case Reference(node, path):
            if node in known.missing:
                raise Unresolved(f"node {shown(node)} has no result to pass on: {known.missing[node]}")
            if node not in known.results:
                raise Unresolved(f"node {shown(node)} has no result: it has not succeeded")
            return part_of(known.results[node], path, f"the result of node {shown(node)}")
        case Fault(node, path):
            # With the condition `always`, the parts of an error may be missing.
            fault = known.faults.get(node)
            return None if fault is None else part_of(fault, path, f"the error of node {shown(node)}")
        case Item(path):
            return part_of(known.item, path, "the item")
    assert_never(use)


def _cannot_resolve(message: str) -> NoReturn:
    raise Unresolved(message)
