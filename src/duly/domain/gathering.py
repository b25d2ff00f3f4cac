"""Reading of plain values into a struct, with every problem gathered under its path."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec

from duly.domain.problems import Path, Problem, path_of
from duly.domain.triggers.errors import shown
from duly.domain.wanted import describe_mismatch, describe_shape, suggest_name

S = TypeVar("S", bound=msgspec.Struct)


def gather(kind: type[S], value: object, path: Path, problems: list[Problem], raw: Collection[str] = ()) -> S | None:
    """Read a struct, or return None and add to the problems.

    Fields named in `raw` are taken unread, here and in nested structs.
    """
    before = len(problems)
    found = gather_fields(kind, value, path, problems, raw)
    return kind(**found) if len(problems) == before else None


def gather_fields(
    kind: type[msgspec.Struct], value: object, path: Path, problems: list[Problem], raw: Collection[str] = ()
) -> dict[str, Any]:
    """Read the fields of a struct that can be read; problems of the others are gathered."""
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"{shown(value)} is not a mapping with keys such as {_first(kind)}"))
        return {}
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
            before = len(problems)
            read = _read(value[key], field.type, (*path, key), problems, raw)
            if len(problems) == before:
                found[field.name] = read
    return found


def unknown_key(key: str, known: Iterable[str], path: Path) -> Problem:
    """Report an unknown key, and suggest the nearest known one."""
    if key == "<<":
        return Problem((*path, key), "merge keys are not supported; put shared values under defaults")
    return Problem((*path, key), f"{shown(key)} is not a key here; {suggest_name(key, known)}")


def _read(value: object, kind: Any, path: Path, problems: list[Problem], raw: Collection[str]) -> Any:
    structs = [part for part in (kind, *get_args(kind)) if _is_struct(part)]
    if structs and isinstance(value, Mapping):
        return _read_struct(value, structs, path, problems, raw)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        within = path_of(place.rstrip("`"))
        text = describe_mismatch(shown(_at(value, within)), message, _remedy(message, kind, within))
        problems.append(Problem((*path, *within), text))
        return None


def _read_struct(
    value: Mapping[str, Any],
    structs: list[type[msgspec.Struct]],
    path: Path,
    problems: list[Problem],
    raw: Collection[str],
) -> Any:
    """Read a struct, of several the one that its tag names."""
    tag = structs[0].__struct_config__.tag_field
    if tag is None:
        return gather(structs[0], value, path, problems, raw)
    kinds = {str(struct.__struct_config__.tag): struct for struct in structs}
    given = value.get(tag)
    if not isinstance(given, str) or given not in kinds:
        text = f"{shown(given)} is not a {tag} of {path[-1]}; {suggest_name(str(given), kinds)}"
        problems.append(Problem((*path, tag), text))
        return None
    return gather(kinds[given], {key: part for key, part in value.items() if key != tag}, path, problems, raw)


def _remedy(message: str, kind: Any, within: Path) -> str:
    """Describe the allowed values, if the value is a choice or a moment."""
    needs_shape = message.startswith(("Invalid enum value", "Invalid RFC3339")) and not within
    return f"; give {describe_shape(kind)}" if needs_shape else ""


def _at(value: Any, path: Path) -> Any:
    """Return the value at a path, without its neighbours: one of them may be a secret."""
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):  # A path that ends in a key has no name: any key may be meant.
            return "a part"
    return value


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the fields by their encoded names; cached, because reflection costs more than reading a value."""
    return {field.encode_name: field for field in msgspec.structs.fields(kind)}


def _first(kind: type[msgspec.Struct]) -> str:
    fields = _fields(kind)
    return next((name for name, field in fields.items() if field.required), next(iter(fields)))
