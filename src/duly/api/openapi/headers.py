"""The headers of responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from duly.api.openapi.schemas import Schema
from duly.api.operations import Operation


def _header(about: str, schema: Schema, *, is_always: bool = False) -> Schema:
    return {"description": about, "required": is_always, "schema": schema}


_TEXT: Schema = {"type": "string"}
HEADERS: dict[str, Schema] = {
    "X-Request-ID": _header(
        "The id of this request: the caller's, or a new one.",
        {"type": "string", "minLength": 1, "maxLength": 200},
        is_always=True,
    ),
    "Location": _header("The address of what was created.", {"type": "string", "format": "uri-reference"}),
    "Content-Location": _header("The same resource by its id.", {"type": "string", "format": "uri-reference"}),
    "ETag": _header("The version of the definition, for If-Match.", {"type": "string", "pattern": '^"[0-9]+"$'}),
    "Retry-After": _header("Seconds to wait before the next try.", {"type": "integer", "minimum": 1}),
    "RateLimit": _header("The requests that remain, and the seconds until the limit is full again.", _TEXT),
    "RateLimit-Policy": _header("The limit.", _TEXT),
    "Idempotency-Replayed": _header(
        "Present when this is the stored response to an earlier request with the same key.", {"const": "true"}
    ),
    "Preference-Applied": _header("The longest time that was waited.", {"type": "string", "pattern": "^wait=[0-9]+$"}),
    "Read-From": _header("The server that was read, where a replica may be: its age in seconds, or why not it.", _TEXT),
    "WWW-Authenticate": _header("How to authenticate.", {"const": "Bearer"}, is_always=True),
}
_HEADERS_OF_STATUS = {
    401: ("WWW-Authenticate",),
    409: ("Retry-After",),
    429: ("Retry-After", "RateLimit", "RateLimit-Policy"),
    503: ("Retry-After",),
}


def headers_of_success(operation: Operation, status: int, properties: Mapping[str, Schema]) -> dict[str, Schema]:
    """Name the headers of a success with these properties."""
    names = ["X-Request-ID"]
    if status in (201, 202):
        names.append("Location")
    if {"job_id", "version"} <= properties.keys():
        names += ["ETag", *(["Content-Location"] if "{name}" in operation.path else [])]
    if operation.is_keyed:
        names.append("Idempotency-Replayed")
    if operation.takes_prefer:
        names.append("Preference-Applied")
    if operation.may_lag:
        names.append("Read-From")
    if "rate_limited" in operation.refuses:
        names += ["RateLimit", "RateLimit-Policy"]
    return _references(names)


def headers_of_problem(status: int) -> dict[str, Schema]:
    """Name the headers of a problem with this status."""
    return _references(["X-Request-ID", *_HEADERS_OF_STATUS.get(status, ())])


def _references(names: Iterable[str]) -> dict[str, Schema]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
