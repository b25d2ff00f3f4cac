"""The trace of events, in order: kept raw while a seed runs, written out only for a seed that fails or is watched."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from tests.simulation.server import START

_QUIET = ("runs.look", "shards.lease", "workers.live", "workers.expired_workers", "ready.vacuum", "leased.vacuum")
_TAIL = 60
_CHARACTERS_MAX = 300
_UUID_CHARACTERS = 36
_ID_CHARACTERS = 8  # the part in which ids differ


class Trace:
    """Events of one seed."""

    def __init__(self) -> None:
        self._events: list[tuple[float, str, str, Sequence[Any], Any]] = []

    def add(self, at: float, who: str, what: str, args: Sequence[Any] = (), answer: Any = None) -> None:
        """Note an event."""
        self._events.append((at, who, what, args, answer))

    def lines(self, about: Sequence[str] = ()) -> list[str]:
        """Tell the story in one line an event: all that names one of `about`, or the last part of everything."""
        names = [name[-_ID_CHARACTERS:] for name in about if len(name) == _UUID_CHARACTERS]
        lines = [_line(*event) for event in self._events if event[2] not in _QUIET or _rows(event[4]) > 1]
        chosen = [_excerpt(line, names) for line in lines if any(name in line for name in names)] if names else []
        return (chosen or [_excerpt(line, ()) for line in lines])[-_TAIL:]

    def all_lines(self) -> list[str]:
        """Tell everything."""
        return [_line(*event) for event in self._events]


def _rows(answer: Any) -> int:
    return len(answer) if isinstance(answer, list) else 0


def _line(at: float, who: str, what: str, args: Sequence[Any], answer: Any) -> str:
    told = f" -> {_text(answer)}" if answer is not None else ""
    return f"{at:10.4f} {who:18} {what} {_text(args) if args else ''}{told}"


def _text(value: Any) -> str:
    match value:
        case UUID():
            return str(value)[-_ID_CHARACTERS:]
        case datetime():
            return f"@{(value - START).total_seconds():.3f}"
        case str():
            return value if len(value) < 150 else f"{value[:60]}…"
        case int() | float() | None:
            return str(value)
        case dict():
            return "{" + ", ".join(f"{key}={_text(item)}" for key, item in value.items()) + "}"
        case Exception():
            return f"{type(value).__name__}: {value}"
        case _ if hasattr(value, "keys"):
            return "(" + " ".join(f"{key}={_text(value[key])}" for key in value.keys()) + ")"  # noqa: SIM118 - a Record
        case list() | tuple() | set() | frozenset():
            return "[" + " ".join(_text(item) for item in value) + "]"
    return str(value)


def _excerpt(line: str, names: Sequence[str]) -> str:
    """Cut a line to what can be read, around the names it is told for."""
    if len(line) <= _CHARACTERS_MAX:
        return line
    slots = [place for name in names if (place := line.find(name)) > _CHARACTERS_MAX]
    return line[:_CHARACTERS_MAX] + "".join(f" … {line[place - 60 : place + 160]}" for place in slots)
