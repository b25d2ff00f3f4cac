"""References in a payload: `{"$result": "extract"}` stands for what a node came to, `{"$item": true}` for the item of a map.

They are put in where a run is handed out; the row carries names alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import msgspec

from duly.domain.triggers.errors import shown

RESULT = "$result"
ITEM = "$item"
HANDED_BYTES_MAX = 1_048_576  # what one run is given of others' results
_QUOTED = (f'"{RESULT}"', f'"{ITEM}"')

Refuse = Callable[[str], NoReturn]
Path = tuple[str | int, ...]


class Reference(msgspec.Struct, frozen=True):
    """The result of a node, or the part of it that a path leads to."""

    node: str
    path: Path = ()


class Item(msgspec.Struct, frozen=True):
    """The item that a run of a map is for, or a part of it."""

    path: Path = ()


class Unresolved(Exception):
    """A reference leads nowhere, or to more than a run is handed."""


def uses_in(payload: str, refuse: Refuse) -> list[Reference | Item]:
    """Find all references in a payload, JSON as text."""
    return list(_uses(msgspec.json.decode(payload), refuse)) if has_references(payload) else []


def has_references(payload: str | None) -> bool:
    """Say whether there may be references in a payload; text that looks like one counts."""
    return payload is not None and any(quoted in payload for quoted in _QUOTED)


def read_reference(value: Mapping[str, Any], refuse: Refuse) -> Reference | Item | None:
    """Read a mapping as a reference; nothing when it is none."""
    if RESULT not in value and ITEM not in value:
        return None
    path = value.get("path", [])
    if not isinstance(path, list) or not all(
        isinstance(step, str | int) and not isinstance(step, bool) for step in path
    ):
        refuse(f"path {shown(path)} is not a list of names and numbers")
    match value:
        case {"$result": str(node), **rest} if rest.keys() <= {"path"}:
            return Reference(node, tuple(path))
        case {"$item": True, **rest} if rest.keys() <= {"path"}:
            return Item(tuple(path))
    return refuse(f'{shown(value)} is no reference; write {{"$result": "a node", "path": […]}} or {{"$item": true}}')


def resolved(payload: str, results: Mapping[str, Any], item: Any) -> str:
    """Put results in where a payload names them. Raises Unresolved."""
    return msgspec.json.encode(_resolved(msgspec.json.decode(payload), results, item)).decode()


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


def _uses(value: Any, refuse: Refuse) -> Iterator[Reference | Item]:
    if isinstance(value, dict):
        if (use := read_reference(value, refuse)) is not None:
            yield use
            return
        for each in value.values():
            yield from _uses(each, refuse)
    elif isinstance(value, list):
        for each in value:
            yield from _uses(each, refuse)


def _resolved(value: Any, results: Mapping[str, Any], item: Any) -> Any:
    if isinstance(value, dict):
        match read_reference(value, _cannot_resolve):
            case Reference(node, path):
                if node not in results:
                    raise Unresolved(f"node {shown(node)} has no result: it has not succeeded")
                return part_of(results[node], path, f"the result of node {shown(node)}")
            case Item(path):
                return part_of(item, path, "the item")
        return {name: _resolved(each, results, item) for name, each in value.items()}
    if isinstance(value, list):
        return [_resolved(each, results, item) for each in value]
    return value


def _cannot_resolve(message: str) -> NoReturn:
    raise Unresolved(message)
