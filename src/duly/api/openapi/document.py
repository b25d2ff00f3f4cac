"""The description of the API: OpenAPI 3.1, made from the operations and their shapes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import cleandoc
from typing import Any

from msgspec import inspect

from duly import __version__
from duly.api.openapi.headers import HEADERS, REQUEST_ID, headers_of_answer, headers_of_refusal
from duly.api.openapi.links import add_links
from duly.api.openapi.schemas import Schema, Schemas
from duly.api.operations import Operation
from duly.api.response import EVENT_STREAM, JSON
from duly.domain.fields import NAME_PATTERN
from duly.domain.jobs.spec import NODE_PATTERN
from duly.domain.runs import callback_token
from duly.wire.problems import KINDS, MEDIA_TYPE, Problem

_PARAMETER = re.compile(r"{(\w+)}")
# A name at the end of a path may contain what divides a path; within it, it may not.
_NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": NAME_PATTERN}
_NAME_WITHIN: Schema = {**_NAME, "pattern": NAME_PATTERN.replace("^", "^(?!.*/)")}
_IN_PATH: dict[str, Schema] = {  # What is not named here is an id.
    "tenant": {"type": "integer", "minimum": 1, "maximum": 999_999_999},
    "key_id": {"type": "string", "pattern": "^[a-z2-7]{10}$"},
    "token": {"type": "string", "pattern": callback_token.PATTERN},
    "node": {"type": "string", "maxLength": 120, "pattern": NODE_PATTERN},
}

_ABOUT = """Duly runs what is due: once, later, or again and again.

Every request carries a key: `Authorization: Bearer duly_…`; a callback's token is one in itself. Every error is a problem
document (RFC 9457) with a stable `code` and a remedy. Moments are RFC 3339, UTC on the way out. Lists are read page by page
with `page_token`.
"""


def describe(operations: Sequence[Operation]) -> Schema:
    """Describe the operations as an OpenAPI document."""
    schemas = Schemas(_shapes(operations))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    links = add_links(paths, operations, schemas)
    responses = {"Problem": _problem("Any other refusal or failure.", [], {})}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Duly",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "tags": [{"name": group} for group in dict.fromkeys(operation.group for operation in operations)],
        "paths": paths,
        "components": {
            "schemas": schemas.used_in([paths, responses]),
            "headers": HEADERS,
            "links": links,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "A key of the form duly_<id>_<secret>."}
            },
            "responses": responses,
        },
    }


def _shapes(operations: Sequence[Operation]) -> list[Any]:
    shapes: list[Any] = [Problem]
    for operation in operations:
        shapes += [
            operation.query,
            *(
                shape
                for shape in (operation.body, *operation.also_takes.values(), *operation.responses.values())
                if _is_shape(shape)
            ),
        ]
    return shapes


def _is_shape(shape: Any) -> bool:
    return shape is not None and shape is not bytes and shape is not str


def _operation(operation: Operation, schemas: Schemas) -> Schema:
    summary, _, rest = cleandoc(operation.about).partition("\n")
    found: Schema = {
        "operationId": operation.name,
        "summary": summary,
        "tags": [operation.group],
        "security": [] if operation.is_open else [{"key": []}],
        "x-scope": operation.scope,
        "parameters": [*_in_path(operation), *_in_query(operation, schemas), *_in_headers(operation)],
        "responses": _responses(operation, schemas),
    }
    if operation.audits:
        found["x-audit"] = [action.value for action in operation.audits]
    if rest.strip():
        found["description"] = rest.strip()
    if operation.body is not None:
        schema = schemas.of(operation.body) if _is_shape(operation.body) else {"type": "string"}
        found["requestBody"] = {
            "required": _is_required(operation),
            "content": {operation.media_type: {"schema": schema}}
            | {kind: {"schema": schemas.of(shape)} for kind, shape in operation.also_takes.items()},
        }
    return found


def _is_required(operation: Operation) -> bool:
    if not _is_shape(operation.body):
        return True
    kind = inspect.type_info(operation.body)
    return not isinstance(kind, inspect.StructType) or any(field.required for field in kind.fields)


def _in_path(operation: Operation) -> list[Schema]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _path_schema(operation, name)}
        for name in _PARAMETER.findall(operation.path)
    ]


def _path_schema(operation: Operation, name: str) -> Schema:
    if name == "name":
        return _NAME if operation.path.endswith("{name}") else _NAME_WITHIN
    return _IN_PATH.get(name, {"type": "string", "format": "uuid"})


def _in_query(operation: Operation, schemas: Schemas) -> list[Schema]:
    fields, required = schemas.fields(operation.query)
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": {key: value for key, value in shape.items() if key != "description"},
        }
        | ({"description": shape["description"]} if "description" in shape else {})
        for name, shape in fields.items()
    ]


def _in_headers(operation: Operation) -> list[Schema]:
    found = []
    if operation.is_keyed:
        about = "Repeated with the same key within 24 hours, the request returns the stored response and is not executed again."
        if operation.is_resumable:
            about = "Repeated with the same key within 24 hours, the request continues, or returns the stored response."
        found.append(
            _header(
                "Idempotency-Key", about, {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[ -~]+$"}
            )
        )
    if operation.is_matched:
        found.append(_header("If-Match", "ETag of the version that was read; required.", {"type": "string"}))
    if operation.takes_prefer:
        about = "wait=n: wait for the end of a one-shot, up to n seconds, at most 60."
        found.append(_header("Prefer", about, {"type": "string", "examples": ["wait=10"]}))
    if operation.response_type == EVENT_STREAM or operation.may_stream:
        about = "Id of the last event received: the stream continues after it."
        found.append(_header("Last-Event-ID", about, {"type": "string"}))
    return found


def _header(name: str, about: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "required": False, "description": about, "schema": schema}


def _responses(operation: Operation, schemas: Schemas) -> Schema:
    found = {str(status): _success(operation, status, shape, schemas) for status, shape in operation.responses.items()}
    codes: dict[int, list[str]] = {}
    for code in (*refusals_of(operation), "unavailable"):
        codes.setdefault(KINDS[code].status, []).append(code)
    for status, several in sorted(codes.items()):
        about = " ".join(f"`{code}`: {KINDS[code].title}." for code in several)
        found[str(status)] = _problem(about, several, headers_of_refusal(operation, several))
    return found | {"default": {"$ref": "#/components/responses/Problem"}}


def refusals_of(operation: Operation) -> list[str]:
    """Name the kinds of problems that an operation is known for; what the server itself fails at is not among them."""
    found = ["invalid_query", *([] if operation.is_open else ["unauthorized", "forbidden"]), "headers_too_large"]
    if operation.body is not None:
        found += ["body_too_large", "unsupported_media_type"]
        if operation.body is not bytes:
            found += ["malformed_json", "invalid_body"]
    if _may_be_missing(operation):
        found.append("not_found")
    if operation.is_keyed:
        found += ["invalid_header", "key_in_progress", "key_reused"]
    if operation.has_key_inside:
        found.append("key_mismatch")
    if operation.is_matched:
        found += ["precondition_required", "version_changed"]
    return list(dict.fromkeys([*found, *operation.refuses]))


def _may_be_missing(operation: Operation) -> bool:
    """Return whether what the path names must be there; a name that is put, or held, need not be."""
    named = set(_PARAMETER.findall(operation.path))
    return bool(named - {"name"}) or ("name" in named and operation.method in ("GET", "DELETE"))


def _success(operation: Operation, status: int, shape: Any, schemas: Schemas) -> Schema:
    about = {200: "Done.", 201: "Made.", 202: "Accepted and stored.", 204: "Done; no content."}.get(status, "Answered.")
    properties = schemas.properties(shape) if _is_shape(shape) else {}
    found: Schema = {"description": about, "headers": headers_of_answer(operation, status, properties)}
    if shape is None:
        return found
    schema = schemas.of(shape) if _is_shape(shape) else {"type": "string"}
    kind = operation.response_type if status < 300 else JSON
    content = {kind: {"schema": {"type": "string"} if kind == EVENT_STREAM else schema}}
    if operation.may_stream:
        content[EVENT_STREAM] = {"schema": {"type": "string"}}
    return found | {"content": content}


def _problem(about: str, codes: Sequence[str], headers: Schema) -> Schema:
    found: Schema = {
        "description": about,
        "headers": headers or {"X-Request-ID": REQUEST_ID},
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    return found | ({"x-codes": list(codes)} if codes else {})
