"""The description of the API: OpenAPI 3.1, made from the operations and their shapes.

Parts that many operations have are written once, as components: schemas, parameters, headers, examples, and one problem a status.
The problems of an operation are its `x-codes`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import cleandoc
from typing import Any

import msgspec
from msgspec import inspect

from duly import __version__
from duly.api.openapi.examples import EXAMPLE_ID, PATH_EXAMPLES, Examples
from duly.api.openapi.headers import HEADERS, headers_of_problem, headers_of_success
from duly.api.openapi.schemas import Schema, Schemas
from duly.api.operations import Operation
from duly.api.response import EVENT_STREAM, JSON, OCTETS
from duly.domain.fields import NAME_WITHOUT_SLASH_PATTERN
from duly.domain.jobs.spec import NODE_PATTERN
from duly.domain.runs import callback_token
from duly.wire.problems import KINDS, MEDIA_TYPE, Problem, problem

_PARAMETER = re.compile(r"{(\w+)}")
# A name at the end of a path may contain what divides a path; within it, it may not.
_NAME: Schema = {"$ref": "#/components/schemas/Name"}
_NAME_WITHIN: Schema = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": NAME_WITHOUT_SLASH_PATTERN}
_IN_PATH: dict[str, Schema] = {  # What is not named here is an id.
    "tenant": {"type": "integer", "minimum": 1, "maximum": 999_999_999},
    "key_id": {"type": "string", "pattern": "^[a-z2-7]{10}$"},
    "token": {"type": "string", "pattern": callback_token.PATTERN},
    "node": {"type": "string", "maxLength": 120, "pattern": NODE_PATTERN},
}

_ABOUT = """Duly runs jobs: once, later, or on a schedule.

Every request carries an API key: `Authorization: Bearer duly_…`. The token of a callback needs none. Every error is a problem
document (RFC 9457) with a stable `code` and a `remedy`. Moments are RFC 3339, in UTC in responses. Lists come in pages; the
next page is read with `page_token`.
"""
_SUMMARY = re.compile(r"(?:`[^`]*`|[^`])*?[.:](?=\s|$)", re.DOTALL)
_SUCCESS = {200: "Done.", 201: "Created.", 202: "Accepted, and durable.", 204: "Done. The response has no body."}


def describe(operations: Sequence[Operation]) -> Schema:
    """Describe the operations as an OpenAPI document."""
    return _Description(operations).document()


class _Description:
    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations
        self._schemas = Schemas(shapes_of(operations))
        self._examples = Examples(self._schemas)
        self._parameters: dict[str, Schema] = {}

    def document(self) -> Schema:
        paths: dict[str, dict[str, Any]] = {}
        for operation in self._operations:
            paths.setdefault(operation.path, {})[operation.method.lower()] = self._operation(operation)
        problems = self._problems()
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
            "tags": [{"name": group} for group in dict.fromkeys(one.group for one in self._operations)],
            "paths": paths,
            "components": {
                "schemas": self._schemas.used_in([paths, problems, self._parameters]),
                "parameters": dict(sorted(self._parameters.items())),
                "headers": HEADERS,
                "examples": dict(sorted(self._examples.used.items())),
                "securitySchemes": {
                    "key": {
                        "type": "http",
                        "scheme": "bearer",
                        "description": "An API key: `duly_<id>_<secret>`.",
                    }
                },
                "responses": problems,
            },
        }

    def _operation(self, operation: Operation) -> Schema:
        found: Schema = {
            "operationId": operation.name,
            "summary": _summary(operation),
            "description": _description(operation),
            "tags": [operation.group],
            "x-scope": operation.scope,
            "x-codes": refusals_of(operation),
            "parameters": [
                *(self._shared(one) for one in _in_path(operation)),
                *(self._shared(one) for one in self._in_query(operation)),
                *(self._shared(one) for one in _in_headers(operation)),
            ],
            "responses": self._responses(operation),
        }
        if operation.is_open:
            found["security"] = []
        if operation.audits:
            found["x-audit"] = [action.value for action in operation.audits]
        if operation.body is not None:
            found["requestBody"] = {"required": _is_required(operation), "content": self._bodies(operation)}
        return found

    def _bodies(self, operation: Operation) -> Schema:
        if operation.body is bytes:  # Generators of clients know one type for a body that is not one JSON value.
            return {OCTETS: self._lines()}
        taken = {operation.media_type: operation.body, **operation.also_takes}
        return {kind: self._content(shape, is_request=True) for kind, shape in taken.items()}

    def _lines(self) -> Schema:
        text = self._examples.lines()
        return {"schema": {"type": "string", "format": "binary"}, "example": text}

    def _content(self, shape: Any, *, is_request: bool) -> Schema:
        schema = self._schemas.of(shape)
        return {"schema": schema, "examples": {"example": self._examples.of(schema, is_request=is_request)}}

    def _in_query(self, operation: Operation) -> list[Schema]:
        fields, required = self._schemas.fields(operation.query)
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

    def _shared(self, parameter: Schema) -> Schema:
        """Return a reference to a parameter, or the parameter itself where another one has its name."""
        name = parameter["name"]
        if self._parameters.setdefault(name, parameter) != parameter:
            return parameter
        return {"$ref": f"#/components/parameters/{name}"}

    def _responses(self, operation: Operation) -> Schema:
        found = {str(status): self._success(operation, status) for status in operation.responses}
        for status in sorted({KINDS[code].status for code in (*refusals_of(operation), "unavailable")}):
            found[str(status)] = {"$ref": f"#/components/responses/Problem{status}"}
        return found

    def _success(self, operation: Operation, status: int) -> Schema:
        shape = operation.responses[status]
        properties = self._schemas.properties(shape) if _is_shape(shape) else {}
        found: Schema = {
            "description": _SUCCESS[status],
            "headers": headers_of_success(operation, status, properties),
        }
        if shape is None:
            return found
        if operation.body is bytes:
            return found | {"content": {kind: self._answered_lines(shape) for kind in (operation.media_type, OCTETS)}}
        stream = {"schema": {"type": "string"}, "example": self._examples.event()}
        if operation.response_type == EVENT_STREAM:
            return found | {"content": {EVENT_STREAM: stream}}
        content = {JSON: self._content(shape, is_request=False)}
        return found | {"content": content | ({EVENT_STREAM: stream} if operation.may_stream else {})}

    def _answered_lines(self, shape: Any) -> Schema:
        return {"schema": self._schemas.of(shape), "examples": {"line": self._examples.of(self._schemas.of(shape))}}

    def _problems(self) -> dict[str, Schema]:
        """Describe the problems of each status that operations name."""
        codes: dict[int, list[str]] = {}
        named = {code for operation in self._operations for code in refusals_of(operation)} | {"unavailable"}
        for code in (code for code in KINDS if code in named):
            codes.setdefault(KINDS[code].status, []).append(code)
        return {f"Problem{status}": _problem(status, several) for status, several in sorted(codes.items())}


def _problem(status: int, codes: Sequence[str]) -> Schema:
    about = " ".join(f"`{code}`: {KINDS[code].title}." for code in codes)
    kind = KINDS[codes[0]]
    example = problem(
        codes[0], f"{kind.title}.", instance="/v1/jobs", request_id="1f0c7a52-8e1c-4d0f-9a39-6a5b3c1d2e4f"
    )
    return {
        "description": about,
        "headers": headers_of_problem(status),
        "content": {
            MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}, "example": msgspec.to_builtins(example)}
        },
    }


def _summary(operation: Operation) -> str:
    """Return the first sentence about an operation, up to a colon."""
    text = " ".join(cleandoc(operation.about).split())
    found = _SUMMARY.match(text)
    return (found[0] if found else text).rstrip(".:")


def _description(operation: Operation) -> str:
    needs = "Needs no API key." if operation.is_open else f"Needs the scope `{operation.scope}`."
    return f"{cleandoc(operation.about)}\n\n{needs}"


def shapes_of(operations: Sequence[Operation]) -> list[Any]:
    """Return every shape that operations read or write."""
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


def _is_required(operation: Operation) -> bool:
    if not _is_shape(operation.body):
        return True
    kind = inspect.type_info(operation.body)
    return not isinstance(kind, inspect.StructType) or any(field.required for field in kind.fields)


def _in_path(operation: Operation) -> list[Schema]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": _path_schema(operation, name),
            "example": PATH_EXAMPLES.get(name, EXAMPLE_ID),
        }
        for name in _PARAMETER.findall(operation.path)
    ]


def _path_schema(operation: Operation, name: str) -> Schema:
    if name == "name":
        return _NAME if operation.path.endswith("{name}") else _NAME_WITHIN
    return _IN_PATH.get(name, {"type": "string", "format": "uuid"})


def _in_headers(operation: Operation) -> list[Schema]:
    found = []
    if operation.is_keyed:
        about = "A second request with the same key within 24 hours gets the stored response and changes nothing."
        if operation.is_resumable:
            about = "A second request with the same key within 24 hours resumes the work, or gets the stored response."
        found.append(
            _header(
                "Idempotency-Key", about, {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[ -~]+$"}
            )
        )
    if operation.is_matched:
        found.append(_header("If-Match", "The ETag of the version that was read; required.", {"type": "string"}))
    if operation.takes_prefer:
        about = "wait=n: wait up to n seconds, at most 60, for a one-shot to end."
        found.append(_header("Prefer", about, {"type": "string", "examples": ["wait=10"]}))
    if operation.response_type == EVENT_STREAM or operation.may_stream:
        about = "The last event received; the stream continues after it."
        found.append(_header("Last-Event-ID", about, {"type": "string"}))
    return found


def _header(name: str, about: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "required": False, "description": about, "schema": schema}


_OF_CALLERS = ("unauthorized", "forbidden", "tenant_moved", "tenant_moving")


def refusals_of(operation: Operation) -> list[str]:
    """Name the kinds of problems that an operation is known for; what the server itself fails at is not among them."""
    found = [
        "invalid_query",
        *([] if operation.is_open else ["unauthorized", "forbidden", "tenant_moved", "tenant_moving"]),
        "headers_too_large",
    ]
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
