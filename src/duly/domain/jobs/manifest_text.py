"""Text of a file of schedules: YAML or JSON into plain values with positions, and back into YAML.

Only JSON's kinds of value are read. `yes`, `on`, `12:30` and `2026-01-01` are text, as in YAML 1.2, so that a zone, a
country or a moment is what was written. Tags construct nothing, and the expansion of aliases is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NoReturn

import msgspec
import yaml

from duly.domain.problems import InvalidManifest, Path, Places, Problem
from duly.domain.runs.payload import DEPTH_MAX
from duly.domain.triggers.errors import shown

FILE_BYTES_MAX = 4 * 1024 * 1024
VALUES_MAX = 500_000
# The levels of the manifest around a payload.
_DEPTH_MAX = DEPTH_MAX + 4
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's loader is ten times as fast.
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}
_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


class Document(msgspec.Struct, frozen=True):
    """The values of a text, and their positions: an entry's position is that of its key."""

    value: Any
    places: Places


def read_text(text: str, name: str) -> Document:
    """Parse YAML or JSON. Raises InvalidManifest, which names the line and the column."""
    if len(text) > FILE_BYTES_MAX or len(text.encode(errors="replace")) > FILE_BYTES_MAX:
        problem = Problem((), f"the file is larger than {FILE_BYTES_MAX} bytes; split it into files with a source each")
        raise InvalidManifest([problem], name)
    reader = _Reader(name)
    try:
        return Document(reader.document(yaml.parse(_readable(text), Loader=_Loader)), reader.places)
    except yaml.MarkedYAMLError as error:
        said = " ".join(part for part in (error.context, error.problem) if part)
        raise _invalid(said, error.problem_mark or error.context_mark, name) from None
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise _invalid(" ".join(str(error).split()), None, name) from None


def write_text(value: Any) -> str:
    """Write plain values as YAML that reads back the same."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    return text


def _readable(text: str) -> str:
    """Adapt JSON to YAML, which refuses tabs between tokens and surrogate pairs."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    return _PAIR.sub(_joined, text.replace("\t", " "))


def _joined(match: re.Match[str]) -> str:
    return bytes.fromhex(match[1] + match[2]).decode("utf-16-be")


def _invalid(message: str, mark: Any, name: str) -> InvalidManifest:
    line, column = (None, None) if mark is None else (mark.line + 1, mark.column + 1)
    return InvalidManifest([Problem((), f"the file is not YAML: {message}", line, column)], name)


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Quotes text that would be read as another type, and repeats values instead of using aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-0123456789"))


class _Reader:
    """Builds values from parser events, without recursion in C and without following tags."""

    def __init__(self, name: str) -> None:
        self.places: dict[Path, tuple[int, int]] = {}
        self._name = name
        self._count = 0
        self._anchors: dict[str, tuple[Any, int]] = {}

    def document(self, events: Iterator[Any]) -> Any:
        """Read the only document."""
        value: Any = None
        found = 0
        for event in events:
            if isinstance(event, yaml.NodeEvent):
                found += 1
                if found > 1:
                    self._refuse("the file has a second document; put it into another file", event)
                value = self._value(event, events, ())
        return value

    def _value(self, event: Any, events: Iterator[Any], path: Path) -> Any:
        self.places.setdefault(path, (event.start_mark.line + 1, event.start_mark.column + 1))
        self._take(1, event)
        if len(path) > _DEPTH_MAX:
            self._refuse(f"the file is nested deeper than {_DEPTH_MAX} levels; flatten it", event)
        if isinstance(event, yaml.AliasEvent):
            return self._referred(event)
        if event.tag not in (None, "!"):
            self._refuse(f"tag {shown(event.tag)} is not supported; write a plain value", event)
        before = self._count
        value = self._constructed(event, events, path)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._count - before + 1)
        return value

    def _constructed(self, event: Any, events: Iterator[Any], path: Path) -> Any:
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(events, path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(events, path)
        return self._scalar(event)

    def _referred(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            self._refuse(f"alias *{event.anchor} has no anchor before it; define &{event.anchor} first", event)
        value, count = self._anchors[event.anchor]
        self._take(count, event)
        return value

    def _mapping(self, events: Iterator[Any], path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                self._refuse("a key must be text, not a list or a mapping", event)
            key = str(event.value)
            if key in found:
                line = self.places[(*path, key)][0]
                self._refuse(f"key {shown(key)} is given twice, first on line {line}; keep one", event)
            self.places[(*path, key)] = (event.start_mark.line + 1, event.start_mark.column + 1)
            found[key] = self._value(next(events), events, (*path, key))
        return found

    def _sequence(self, events: Iterator[Any], path: Path) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            found.append(self._value(event, events, (*path, len(found))))
        return found

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if not event.implicit[0]:  # quoted, or a block
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _FLOAT.fullmatch(text):
            return float(text)
        if not _INTEGER.fullmatch(text):
            return text
        if len(text) > 20:
            self._refuse(f"number {shown(text)} is too long; put it in quotes", event)
        return int(text)

    def _take(self, count: int, event: Any) -> None:
        self._count += count
        if self._count > VALUES_MAX:
            self._refuse(f"the file has more than {VALUES_MAX} values with its aliases expanded; split it", event)

    def _refuse(self, message: str, event: Any) -> NoReturn:
        mark = event.start_mark
        raise InvalidManifest([Problem((), message, mark.line + 1, mark.column + 1)], self._name)
