"""Reading what callers send, strictly: what is wrong is named with its place, and a misspelt field with the nearest known one."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from duly.domain.errors import Refused
from duly.domain.payload import DEPTH_MAX

T = TypeVar("T")

# The body wraps the payload, which may have its own full depth.
BODY_DEPTH_MAX = DEPTH_MAX + 8
_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `(?P<place>(?:key in )?\$.*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


class Wrong(msgspec.Struct, frozen=True):
    """One thing that is wrong: where, as a JSON pointer into the body or a parameter's name, and what."""

    pointer: str
    message: str


class Malformed(Refused):
    """A body that is not JSON at all."""


class Misshapen(Refused):
    """JSON, or a query, that has not the shape that is asked for."""

    def __init__(self, errors: Sequence[Wrong]) -> None:
        self.errors = list(errors)
        super().__init__("; ".join(f"{error.pointer or 'body'}: {error.message}" for error in errors))


@lru_cache(maxsize=256)
def _decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape)


def read_body(body: bytes, shape: type[T]) -> T:
    """Read JSON into a shape. Raises Malformed, Misshapen."""
    check_depth(body)
    try:
        return cast("T", _decoder(cast("Hashable", shape)).decode(body))
    except msgspec.ValidationError as error:
        raise Misshapen([_wrong(str(error), shape)]) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"the body is not JSON: {_plain(error)}; send one JSON value in UTF-8") from None
    except RecursionError:
        raise _too_deep() from None


def read_value(value: Any, shape: type[T]) -> T:
    """Read a decoded JSON value into a shape. Raises Misshapen."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise Misshapen([_wrong(str(error), shape)]) from None


def read_query(pairs: Iterable[tuple[str, str]], shape: type[T]) -> T:
    """Read a query string's parameters, each at most once. Raises Misshapen."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise Misshapen([Wrong(name, "is given twice; give it once")])
        found[name] = value
    try:
        return msgspec.convert(found, shape, strict=False)
    except msgspec.ValidationError as error:
        wrong = _wrong(str(error), shape)
        raise Misshapen([Wrong(wrong.pointer.removeprefix("/") or "query", wrong.message)]) from None


def check_depth(body: bytes) -> None:
    """Refuse JSON that is nested too deeply, before it is read. Raises Misshapen."""
    if body.count(b"[") + body.count(b"{") <= BODY_DEPTH_MAX:
        return
    depth = deepest = 0
    for token in _TOKENS.finditer(body):
        opens = token[0] in (b"{", b"[")
        depth += opens - (token[0] in (b"}", b"]"))
        deepest = max(deepest, depth)
    if deepest > BODY_DEPTH_MAX:
        raise _too_deep()


# A string that is not closed reaches to the end: were it no token, each quote in it would be looked at as a new beginning.
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name is meant, or which there are."""
    names = list(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(names)}" if names else "none is known here"


def _too_deep() -> Misshapen:
    return Misshapen([Wrong("", f"is nested deeper than {BODY_DEPTH_MAX} levels; flatten it")])


def _wrong(message: str, shape: Any) -> Wrong:
    match = _PLACE.match(message)
    assert match is not None
    steps = [step or index for step, index in _STEP.findall(match["place"] or "")]
    if unknown := _UNKNOWN.match(match["what"]):
        name = unknown[1]
        known = _fields(shape, steps)
        if name in known:  # Of several shapes that may stand here, another one has it.
            return Wrong(
                _pointer([*steps, name]), "is no field of this type, but of another; leave it out, or change type"
            )
        return Wrong(_pointer([*steps, name]), f"is no field here; {nearest(name, known)}")
    return Wrong(_pointer(steps), _sentence(match["what"]))


def _sentence(what: str) -> str:
    return f"{what[:1].lower()}{what[1:]}"


def _pointer(steps: Sequence[str]) -> str:
    return "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)


def _plain(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error))[:200]


def _fields(shape: Any, steps: Sequence[str]) -> list[str]:
    """Name the fields that may stand at a place; of a union, those of all its shapes."""
    kinds = [inspect.type_info(shape)]
    for step in steps:
        kinds = [inner for kind in kinds for inner in _inner(kind, step)]
    return sorted(
        {field.encode_name for kind in _spread(kinds) if isinstance(kind, inspect.StructType) for field in kind.fields}
    )


def _inner(kind: inspect.Type, step: str) -> list[inspect.Type]:
    found: list[inspect.Type] = []
    for one in _spread([kind]):
        if isinstance(one, inspect.StructType):
            found += [field.type for field in one.fields if field.encode_name == step]
        elif isinstance(one, inspect.ListType | inspect.VarTupleType):
            found.append(one.item_type)
        elif isinstance(one, inspect.DictType):
            found.append(one.value_type)
    return found


def _spread(kinds: Iterable[inspect.Type]) -> list[inspect.Type]:
    found: list[inspect.Type] = []
    for kind in kinds:
        inner = kind.type if isinstance(kind, inspect.Metadata) else kind
        found += _spread(inner.types) if isinstance(inner, inspect.UnionType) else [inner]
    return found


def merge_patch(value: Any, patch: Any) -> Any:
    """Lay a merge patch (RFC 7396) over a JSON value: null takes a field away."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(value) if isinstance(value, Mapping) else {}
    for name, change in patch.items():
        if change is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), change)
    return merged
