"""Encoding of requests; values that JSON, a path or a header cannot carry are refused before anything is sent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from duly.client.errors import Invalid
from duly.domain.triggers.errors import shown

_REMEDY = "Nothing was sent."
_ADDRESS_BYTES_MAX = 16_384  # of the head of a request; the server refuses a longer one


def write(body: object) -> bytes:
    """Encode a body as JSON. Raises Invalid, which names the place of the value."""
    try:
        _check(body, "")
        return msgspec.json.encode(body)
    except RecursionError:
        raise _refused("the body is nested too deeply, or contains itself; flatten it") from None
    except (TypeError, ValueError) as error:
        raise _refused(f"the body is not JSON: {error}") from None


def check_text(text: str, what: str) -> str:
    """Refuse a value that is not text. Raises Invalid."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise _refused(
                f"{what} {text!r} has a lone surrogate at position {error.start}; it is not valid text"
            ) from None
    return text


def check_step(name: str) -> str:
    """Refuse a name that would change the path. Raises Invalid."""
    if name in (".", ".."):
        raise _refused(f"{name!r} is no name; give the name of what you mean")
    return check_text(name, "name")


def check_address(quoted: str, what: str) -> str:
    """Refuse a part of an address that is longer than any that is served. Raises Invalid."""
    if len(quoted) > _ADDRESS_BYTES_MAX:
        raise _refused(
            f"{what} has {len(quoted):,} bytes in the address; the limit is {_ADDRESS_BYTES_MAX:,}. Give a shorter one"
        )
    return quoted


def check_key(key: str) -> str:
    """Refuse an idempotency key that no header can carry. Raises Invalid."""
    if not (key.isascii() and key.isprintable()):
        raise _refused(f"key {key!r} is not printable ASCII, which is all that a header carries; give another")
    return key


def _check(value: Any, place: str) -> None:
    if isinstance(value, str):
        check_text(value, place or "the body")
    elif isinstance(value, float) and not math.isfinite(value):
        raise _refused(f"{place or 'the body'} is {value}, which JSON cannot express; use null or a string")
    elif isinstance(value, set | frozenset):
        raise _refused(f"{place or 'the body'} is a set, which has no order; give a list")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check_text(str(key), f"a key of {place or 'the body'}")
            _check(item, f"{place}/{shown(key) if not isinstance(key, str) else key}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            _check(item, f"{place}/{number}")
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            _check(getattr(value, name), f"{place}/{name}")


def _refused(detail: str) -> Invalid:
    return Invalid(f"{detail[:1].upper()}{detail[1:]}.", code="invalid_payload", remedy=_REMEDY)
