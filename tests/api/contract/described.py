"""The description as a judge: whether an answer is one of those that its operation is described with."""

from __future__ import annotations

from typing import Any

import httpx
import jsonschema_rs
import msgspec

from duly.api.openapi.document import describe
from duly.api.operations import Operation
from duly.api.routes import OPERATIONS

DOCUMENT: dict[str, Any] = describe(OPERATIONS)
BY_NAME = {operation.name: operation for operation in OPERATIONS}
NAMES = sorted(BY_NAME)
_validators: dict[str, Any] = {}


def described(operation: Operation) -> dict[str, Any]:
    """Give the description of an operation, with its parameters and responses written out."""
    found: dict[str, Any] = DOCUMENT["paths"][operation.path][operation.method.lower()]
    return {
        **found,
        "parameters": [resolved(one) for one in found["parameters"]],
        "responses": {status: resolved(one) for status, one in found["responses"].items()},
    }


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    """Give what a reference leads to; all else as it is."""
    if "$ref" not in part:
        return part
    found: dict[str, Any] = DOCUMENT
    for step in part["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    return found


def responses(operation: Operation) -> dict[str, Any]:
    """Give the responses that it is described with by their status."""
    return dict(described(operation)["responses"])


def codes(operation: Operation) -> list[str]:
    """Name the refusals that it is described with, but not the failures of the server."""
    return list(described(operation)["x-codes"])


def faults(operation: Operation, answer: httpx.Response) -> list[str]:
    """Say in what an answer differs from its description."""
    response = responses(operation).get(str(answer.status_code))
    if response is None:
        return [f"status {answer.status_code} is not described: {answer.text[:300]}"]
    return [*_of_headers(response, answer), *_of_content(response, answer), *_of_code(operation, answer)]


def _of_headers(response: dict[str, Any], answer: httpx.Response) -> list[str]:
    found = []
    for name, reference in response["headers"].items():
        header = DOCUMENT["components"]["headers"][reference["$ref"].rpartition("/")[2]]
        given: Any = answer.headers.get(name)
        if given is None:
            found += [f"header {name} is missing"] if header["required"] else []
            continue
        value = int(given) if header["schema"].get("type") == "integer" and given.isdigit() else given
        found += [f"header {name}: {error}" for error in _errors(header["schema"], value)]
    told = {name.lower() for name in response["headers"]} | _PLAIN
    return found + [f"header {name} is not described" for name in answer.headers if name not in told]


# What HTTP itself says, and what every answer carries without saying anything of the operation.
_PLAIN = {
    "content-type",
    "content-length",
    "cache-control",
    "x-content-type-options",
    "date",
    "connection",
    "transfer-encoding",
    "x-accel-buffering",
    "duly-accepted",
    "duly-refused",
}


def _of_content(response: dict[str, Any], answer: httpx.Response) -> list[str]:
    if "content" not in response:
        return [f"has a body: {answer.text[:100]}"] if answer.content else []
    kind = answer.headers.get("content-type", "").partition(";")[0]
    content = response["content"].get(kind)
    if content is None:
        return [f"is {answer.headers.get('content-type')} and not {' or '.join(response['content'])}"]
    if kind.endswith("ndjson"):
        lines = [line for line in answer.content.split(b"\n") if line]
        return [error for line in lines for error in _errors(content["schema"], msgspec.json.decode(line))]
    if not kind.endswith("json"):
        return []
    return _errors(content["schema"], msgspec.json.decode(answer.content))


def _of_code(operation: Operation, answer: httpx.Response) -> list[str]:
    if answer.status_code < 400:
        return []
    code = answer.json()["code"]
    return [] if code in (*codes(operation), "unavailable") else [f"code {code} is not described: {answer.text[:300]}"]


def _errors(schema: dict[str, Any], value: Any) -> list[str]:
    whole = {**schema, "components": DOCUMENT["components"]}
    key = msgspec.json.encode(schema).decode()
    if key not in _validators:
        _validators[key] = jsonschema_rs.Draft202012Validator(whole, validate_formats=True)
    return [f"{list(error.instance_path)}: {error.message[:200]}" for error in _validators[key].iter_errors(value)]
