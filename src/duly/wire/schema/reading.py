"""Strict reading of requests: errors name the place, and a misspelt field the nearest known one."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

from duly.domain.errors import Refused
from duly.domain.runs.payload import DEPTH_MAX, is_deeper
from duly.domain.triggers.errors import shown
from duly.wire.schema.fitting import UNKNOWN, Wrong, wrong_with

T = TypeVar("T")

# The body wraps the payload, which may have its own full depth.
BODY_DEPTH_MAX = DEPTH_MAX + 8


class Malformed(Refused):
    """A body that is not JSON at all."""


class Misshapen(Refused):
    """JSON, or a query, of another shape than required."""

    def __init__(self, errors: Sequence[Wrong]) -> None:
        self.errors = list(errors)
        super().__init__("; ".join(f"{error.pointer or 'body'}: {error.message}" for error in errors))


@lru_cache(maxsize=256)
def _decoder(shape: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(shape)


def read_body(body: bytes, shape: type[T]) -> T:
    """Decode JSON into a shape. Raises Malformed, Misshapen."""
    check_depth(body)
    decoder = _decoder(cast("Hashable", shape))
    try:
        found = cast("T", decoder.decode(body))
    except msgspec.ValidationError as error:
        wrong = wrong_with(str(error), shape, _given(body), lambda part: decoder.decode(msgspec.json.encode(part)))
        raise Misshapen([wrong]) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"the body is not JSON: {why_not_json(body, error)}; send one JSON value in UTF-8") from None
    except RecursionError:
        raise _too_deep() from None
    _check_unique(body)
    return found


def _check_unique(body: bytes) -> None:
    """Refuse JSON whose objects give a key twice: readers disagree on which value counts. Raises Misshapen."""
    if body.count(b":") > 1:
        json.loads(body, object_pairs_hook=_unique, parse_int=_unread, parse_float=_unread)


def _unique(pairs: list[tuple[str, Any]]) -> None:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        twice = next(key for number, key in enumerate(keys) if key in keys[:number])
        raise Misshapen([Wrong("", f"has the key {shown(twice)} twice; give it once")])


def _unread(_: str) -> None:
    return None


def read_value(value: Any, shape: type[T]) -> T:
    """Convert a decoded JSON value into a shape. Raises Misshapen."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        wrong = wrong_with(str(error), shape, value, lambda part: msgspec.convert(part, shape))
        raise Misshapen([wrong]) from None


def read_query(pairs: Iterable[tuple[str, str]], shape: type[T]) -> T:
    """Parse a query string's parameters, each at most once. Raises Misshapen."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise Misshapen([Wrong(name, "is given twice; give it once")])
        found[name] = value
    try:
        return msgspec.convert(found, shape, strict=False)
    except msgspec.ValidationError as error:
        wrong = wrong_with(str(error), shape, found, lambda part: msgspec.convert(part, shape, strict=False))
        raise Misshapen([Wrong(wrong.pointer.removeprefix("/") or "query", wrong.message)]) from None


def _given(body: bytes) -> Any:
    """Decode a body that does not fit its shape; the part after the misfit may not even be JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNKNOWN


def check_depth(body: bytes) -> None:
    """Refuse JSON that is nested too deeply, before it is decoded. Raises Misshapen."""
    if is_deeper(body, BODY_DEPTH_MAX):
        raise _too_deep()


def _too_deep() -> Misshapen:
    return Misshapen([Wrong("", f"is nested deeper than {BODY_DEPTH_MAX} levels; flatten it")])


def why_not_json(body: bytes, error: Exception) -> str:
    """Describe why the decoder, which gave `error`, could not read `body` as JSON."""
    return _lone_surrogate(body) or _plain(error)


def _lone_surrogate(body: bytes) -> str | None:
    """Describe the first lone surrogate, which the decoder reports differently."""
    awaited = -1  # where the other half must begin
    for escape in _ESCAPES.finditer(body):
        half = _SURROGATE.fullmatch(escape[0])
        is_second = half is not None and half["second"] is not None
        if awaited >= 0 and not (is_second and escape.start() == awaited):
            return f"a lone surrogate stands before byte {awaited}"
        if is_second and awaited < 0:
            return f"a lone surrogate stands at byte {escape.start()}"
        awaited = escape.end() if half is not None and not is_second else -1
    return f"a lone surrogate stands before byte {awaited}" if awaited >= 0 else None


_ESCAPES = re.compile(rb"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}|(?P<second>[c-fC-F][0-9a-fA-F]{2}))")


def _plain(error: Exception) -> str:
    return re.sub(r"\s+", " ", str(error))[:200]


def merge_patch(value: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7396) to a JSON value: null removes a field."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(value) if isinstance(value, Mapping) else {}
    for name, change in patch.items():
        if change is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), change)
    return merged
