"""The description of the API: OpenAPI 3.1, made from the operations and their shapes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from inspect import cleandoc
from typing import Any

import msgspec
from msgspec import inspect

from duly import __version__
from duly.api.operations import EVENT_STREAM, JSON, Operation
from duly.wire import manifests
from duly.wire.problems import KINDS, MEDIA_TYPE, Problem
from duly.wire.schedule_schema import COMPONENTS

_REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"{(\w+)}")
Schema = dict[str, Any]

_ABOUT = """Duly runs what is due: once, later, or again and again.

Every request carries a key: `Authorization: Bearer duly_…`. Every error is a problem document (RFC 9457) with a stable `code`
and a remedy. Moments are RFC 3339, UTC on the way out. Lists are read page by page with `page_token`.
"""


def describe(operations: Sequence[Operation]) -> Schema:
    """Describe the operations as an OpenAPI document."""
    shapes = _shapes(operations)
    schemas, components = msgspec.json.schema_components(shapes, ref_template=_REFERENCE)
    known = dict(zip(map(_identity, shapes), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, known, components)
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
            "schemas": {**components, **COMPONENTS, **manifests.COMPONENTS},
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "A key of the form duly_<id>_<secret>."}
            },
            "responses": {"Problem": _problem("Anything else that was refused or failed.")},
        },
    }


def _shapes(operations: Sequence[Operation]) -> list[Any]:
    shapes: list[Any] = [Problem]
    for operation in operations:
        shapes += [
            operation.query,
            *(shape for shape in (operation.body, *operation.answers.values()) if _is_shape(shape)),
        ]
    return list({_identity(shape): shape for shape in shapes}.values())


def _identity(shape: Any) -> str:
    return repr(shape)


def _is_shape(shape: Any) -> bool:
    return shape is not None and shape is not bytes and shape is not str


def _operation(operation: Operation, known: Mapping[str, Schema], components: Mapping[str, Schema]) -> Schema:
    summary, _, rest = cleandoc(operation.about).partition("\n")
    found: Schema = {
        "operationId": operation.name,
        "summary": summary,
        "tags": [operation.group],
        "security": [{"key": []}],
        "x-scope": operation.scope,
        "parameters": [*_in_path(operation), *_in_query(operation, components), *_in_headers(operation)],
        "responses": _responses(operation, known),
    }
    if rest.strip():
        found["description"] = rest.strip()
    if operation.body is not None:
        schema = known[_identity(operation.body)] if _is_shape(operation.body) else {"type": "string"}
        found["requestBody"] = {
            "required": _is_required(operation),
            "content": {operation.media_type: {"schema": schema}},
        }
    return found


def _is_required(operation: Operation) -> bool:
    if not _is_shape(operation.body):
        return True
    kind = inspect.type_info(operation.body)
    return not isinstance(kind, inspect.StructType) or any(field.required for field in kind.fields)


def _in_path(operation: Operation) -> list[Schema]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _path_schema(name)}
        for name in _PARAMETER.findall(operation.path)
    ]


def _path_schema(name: str) -> Schema:
    if name in ("run_id", "job_id", "backfill_id", "worker_id"):
        return {"type": "string", "format": "uuid"}
    return {"type": "string", "minLength": 1, "maxLength": 200}


def _in_query(operation: Operation, components: Mapping[str, Schema]) -> list[Schema]:
    schema = components.get(operation.query.__name__, {})
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": {key: value for key, value in shape.items() if key != "description"},
        }
        | ({"description": shape["description"]} if "description" in shape else {})
        for name, shape in schema.get("properties", {}).items()
    ]


def _in_headers(operation: Operation) -> list[Schema]:
    found = []
    if operation.is_keyed:
        about = "Asked again with the same key within 24 hours, the request is answered the same and not done again."
        found.append(
            _header(
                "Idempotency-Key", about, {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[ -~]+$"}
            )
        )
    if operation.is_matched:
        found.append(_header("If-Match", "The ETag of what was read; required.", {"type": "string"}))
    if operation.takes_prefer:
        about = "wait=n: wait for the end of a one-shot, up to n seconds, at most 60."
        found.append(_header("Prefer", about, {"type": "string", "examples": ["wait=10"]}))
    if operation.answer_type == EVENT_STREAM:
        about = "The last event that was got: what came after it follows."
        found.append(_header("Last-Event-ID", about, {"type": "string"}))
    return found


def _header(name: str, about: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "required": False, "description": about, "schema": schema}


def _responses(operation: Operation, known: Mapping[str, Schema]) -> Schema:
    found = {str(status): _success(operation, status, shape, known) for status, shape in operation.answers.items()}
    titles: dict[int, list[str]] = {}
    for code in refusals_of(operation):
        titles.setdefault(KINDS[code].status, []).append(f"`{code}`: {KINDS[code].title}.")
    for status, sentences in sorted(titles.items()):
        found[str(status)] = _problem(" ".join(sentences))
    return found | {"default": {"$ref": "#/components/responses/Problem"}}


def refusals_of(operation: Operation) -> list[str]:
    """Name the kinds of problems that an operation is known for; what the server itself fails at is not among them."""
    found = ["invalid_query", "unauthorized", "forbidden"]
    if operation.body is not None:
        found += ["malformed_json", "body_too_large", "unsupported_media_type", "invalid_body"]
        if operation.body is bytes:
            found.remove("malformed_json")
    if _PARAMETER.search(operation.path):
        found.append("not_found")
    if operation.is_keyed:
        found += ["key_in_progress", "key_reused"]
    if operation.is_matched:
        found += ["precondition_required", "version_changed"]
    return list(dict.fromkeys([*found, *operation.refuses]))


def _success(operation: Operation, status: int, shape: Any, known: Mapping[str, Schema]) -> Schema:
    about = {200: "Done.", 201: "Made.", 202: "Accepted, and durable.", 204: "Done; nothing to tell."}.get(
        status, "Answered."
    )
    if shape is None:
        return {"description": about}
    schema = known[_identity(shape)] if _is_shape(shape) else {"type": "string"}
    kind = operation.answer_type if status < 300 else JSON
    return {"description": about, "content": {kind: {"schema": {"type": "string"} if kind == EVENT_STREAM else schema}}}


def _problem(about: str) -> Schema:
    return {"description": about, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
