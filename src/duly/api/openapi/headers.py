"""The headers of answers, as the description tells them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from duly.api.openapi.schemas import Schema
from duly.api.operations import Operation


def _header(about: str, schema: Schema, *, is_always: bool = False) -> Schema:
    return {"description": about, "required": is_always, "schema": schema}


_TEXT: Schema = {"type": "string"}
HEADERS: dict[str, Schema] = {
    "X-Request-ID": _header(
        "Id of this request: from the caller, or generated.",
        {"type": "string", "minLength": 1, "maxLength": 200},
        is_always=True,
    ),
    "Location": _header("URL of the created resource.", {"type": "string", "format": "uri-reference"}),
    "Content-Location": _header("URL of the resource by its id.", {"type": "string", "format": "uri-reference"}),
    "ETag": _header("The version of the definition, for If-Match.", {"type": "string", "pattern": '^"[0-9]+"$'}),
    "Retry-After": _header("Seconds to wait before a retry.", {"type": "integer", "minimum": 1}),
    "RateLimit": _header("Remaining quota, and seconds until it is full again.", _TEXT),
    "RateLimit-Policy": _header("The limit.", _TEXT),
    "Idempotency-Replayed": _header("Present if this is the stored response to the same key.", {"const": "true"}),
    "Preference-Applied": _header("Longest wait that was applied.", {"type": "string", "pattern": "^wait=[0-9]+$"}),
    "WWW-Authenticate": _header("How to authenticate.", {"const": "Bearer"}, is_always=True),
}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/headers/{name}"}


REQUEST_ID = _reference("X-Request-ID")
_HEADERS_OF_CODE = {
    "unauthorized": ("WWW-Authenticate",),
    "key_in_progress": ("Retry-After",),
    "rate_limited": ("Retry-After", "RateLimit", "RateLimit-Policy"),
    "quota_reached": ("Retry-After",),
    "shed": ("Retry-After",),
    "conflict": ("Retry-After",),
    "unavailable": ("Retry-After",),
}


def headers_of_answer(operation: Operation, status: int, properties: Mapping[str, Schema]) -> dict[str, Schema]:
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
    if "rate_limited" in operation.refuses:
        names += ["RateLimit", "RateLimit-Policy"]
    return {name: _reference(name) for name in names}


def headers_of_refusal(operation: Operation, codes: Sequence[str]) -> dict[str, Schema]:
    """Name the headers of a refusal of one of these kinds."""
    names = ["X-Request-ID", *(name for code in codes for name in _HEADERS_OF_CODE.get(code, ()))]
    return {name: _reference(name) for name in dict.fromkeys(names)}
