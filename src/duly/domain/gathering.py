"""Reading plain values into a struct with all that is wrong gathered, each thing under its path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec

from duly.domain.problems import Path, Problem, path_of
from duly.domain.runs.run import NOT_BLANK
from duly.domain.triggers.errors import nearest, shown
from duly.domain.wanted import wanted

S = TypeVar("S", bound=msgspec.Struct)


def gather(kind: type[S], value: object, path: Path, problems: list[Problem], raw: Iterable[str] = ()) -> S | None:
    """Read a struct; None where something is wrong, which is then among the problems. The `raw` fields are taken unread."""
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"{shown(value)} is not a mapping with keys such as {next(iter(_fields(kind)))}"))
        return None
    before = len(problems)
    known = _fields(kind)
    problems.extend(unknown_key(key, known, path) for key in value if key not in known)
    found: dict[str, Any] = {}
    for key, field in known.items():
        if key not in value:
            if field.required:
                problems.append(Problem(path, f"{key} is missing; give it"))
        elif field.name in raw:
            found[field.name] = value[key]
        else:
            found[field.name] = _read(value[key], field.type, (*path, key), problems)
    return kind(**found) if len(problems) == before else None


def unknown_key(key: str, known: Iterable[str], path: Path) -> Problem:
    """Say that a key is none, and which was meant."""
    names = list(known)
    if key == "<<":
        return Problem((*path, key), "merge keys are not read; what several jobs share goes under defaults")
    meant = nearest(key, names)
    remedy = f"did you mean {meant}?" if meant else f"known are {', '.join(names)}"
    return Problem((*path, key), f"{shown(key)} is no key here; {remedy}")


def _read(value: object, kind: Any, path: Path, problems: list[Problem]) -> Any:
    struct = next((part for part in (kind, *get_args(kind)) if _is_struct(part)), None)
    if struct is not None and isinstance(value, Mapping):
        return gather(struct, value, path, problems)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        within = path_of(place.rstrip("`"))
        told = f"{shown(_at(value, within))} does not do: {_lower(message)}{_choices(message, kind, within)}"
        if message.endswith(f"matching regex {NOT_BLANK!r}"):
            told = f"{shown(_at(value, within))} is blank; give at least one character that is no space"
        problems.append(Problem((*path, *within), told))
        return None


def _choices(message: str, kind: Any, within: Path) -> str:
    """Say what there is to choose from, where the value itself is a choice."""
    return f"; give {wanted(kind)}" if message.startswith("Invalid enum value") and not within else ""


def _at(value: Any, path: Path) -> Any:
    """Find what stands at a path, so that what stands beside it is not repeated: it may be a secret."""
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):  # The place of a key has no name: any of them may be meant.
            return "a part"
    return value


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """Give the fields by the name they have outside; asking for them costs more than reading a value does."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
