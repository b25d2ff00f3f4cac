"""CloudEvents in binary mode: attributes in headers that begin with `ce-`, data in the body, its type in Content-Type."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from duly.wire.events import BINARY_MARK, CloudEvent
from duly.wire.schema.fitting import Wrong
from duly.wire.schema.reading import Malformed, Misshapen, check_depth, read_value

_PREFIX = "ce-"
_ATTRIBUTES = ("specversion", "id", "source", "type", "time", "subject", "dataschema")


def is_binary(headers: Mapping[str, str]) -> bool:
    """Return whether a request is an event in binary mode: one in structured mode says so in its type."""
    return BINARY_MARK in headers and not media_type(headers).startswith("application/cloudevents")


def attributes(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers that are part of such an event, in one order."""
    return sorted(
        (name.lower(), value) for name, value in headers if name.lower().startswith((_PREFIX, "content-type"))
    )


def read_binary(headers: Mapping[str, str], body: bytes) -> CloudEvent:
    """Read such an event. Raises Malformed, Misshapen, which names the header."""
    given = {name: _decoded(name, headers[_PREFIX + name]) for name in _ATTRIBUTES if _PREFIX + name in headers}
    kind = headers.get("content-type")
    given |= {} if kind is None else {"datacontenttype": kind}
    try:
        return read_value({**given, **_data(media_type(headers), body)}, CloudEvent)
    except Misshapen as error:
        raise Misshapen([Wrong(_header_of(wrong.pointer), wrong.message) for wrong in error.errors]) from None


def media_type(headers: Mapping[str, str]) -> str:
    """Return the type of a body, without its parameters."""
    return (headers.get("content-type") or "").partition(";")[0].strip().lower()


def _data(kind: str, body: bytes) -> dict[str, Any]:
    """Return the body as the same event has it in JSON: text and JSON as they are, all else in base64."""
    if not body:
        return {}
    if kind == "application/json" or kind.endswith("+json"):
        check_depth(body)
        try:
            return {"data": msgspec.json.decode(body)}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Malformed(f"the body is not JSON, but its type is {kind}; send one JSON value in UTF-8") from None
    if kind.startswith("text/"):
        try:
            return {"data": body.decode()}
        except UnicodeDecodeError:
            raise Malformed(f"the body is not UTF-8, but its type is {kind}; send UTF-8") from None
    return {"data_base64": b64encode(body).decode()}


def _decoded(name: str, value: str) -> str:
    """Undo the percent signs with which a header says what is not ASCII."""
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise Misshapen([Wrong(_PREFIX + name, "is not percent-encoded UTF-8; encode it again")]) from None


def _header_of(pointer: str) -> str:
    name = pointer.removeprefix("/")
    return "Content-Type" if name == "datacontenttype" else _PREFIX + name if name in _ATTRIBUTES else pointer
