"""Links from a response to the operations that take what it names, made from the names of fields and parameters.

The description has none, because people would have to read past them; chains of operations follow them.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duly.api.openapi.document import shapes_of
from duly.api.openapi.schemas import Schema, Schemas
from duly.api.operations import Operation

_PARAMETER = re.compile(r"{(\w+)}")
_TAG = "$response.header.ETag"


def linked(document: Schema, operations: Sequence[Operation]) -> Schema:
    """Return a document with links at each success."""
    document = copy.deepcopy(document)
    schemas = Schemas(shapes_of(operations))
    every: dict[str, Schema] = {}
    for operation in operations:
        responses = document["paths"][operation.path][operation.method.lower()]["responses"]
        for status, shape in operation.responses.items():
            found = dict(_links(operation, shape, operations, schemas))
            every |= found
            if found:
                names = sorted(found)
                responses[str(status)]["links"] = {name: {"$ref": f"#/components/links/{name}"} for name in names}
    document["components"]["links"] = dict(sorted(every.items()))
    return document


def _links(
    operation: Operation, shape: Any, operations: Sequence[Operation], schemas: Schemas
) -> Iterator[tuple[str, Schema]]:
    if not isinstance(shape, type) or shape in (bytes, str):
        return
    whole, item = schemas.properties(shape), schemas.items(shape)
    for target in operations:
        names = [name for name in _PARAMETER.findall(target.path) if _is_alike(operation, target, name)]
        if in_whole := [name for name in names if name in whole]:
            slots = {name: f"$response.body#/{name}" for name in in_whole}
            yield _link(target, slots, _TAG if "version" in whole else None)
        elif in_item := [name for name in names if name in item]:
            yield _link(target, {name: f"$response.body#/items/0/{name}" for name in in_item}, None)


def _is_alike(operation: Operation, target: Operation, parameter: str) -> bool:
    """An id is one wherever it stands; a name or a number is one only of its own kind."""
    return parameter.endswith("_id") or _kind(operation) == _kind(target)


def _kind(operation: Operation) -> str:
    return operation.path.split("/")[2].partition(":")[0]


def _link(target: Operation, slots: Mapping[str, str], tag: str | None) -> tuple[str, Schema]:
    parameters = {f"path.{name}": place for name, place in slots.items()}
    if target.is_matched and tag is not None:
        parameters["header.If-Match"] = tag
    kind = (
        "OfFirst"
        if any("/items/" in place for place in slots.values())
        else "AsRead"
        if "header.If-Match" in parameters
        else ""
    )
    return f"{target.name}{kind}", {"operationId": target.name, "parameters": parameters}
