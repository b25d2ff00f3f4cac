"""Values made from their schema: the least that is asked for, in words that its examples use."""

from __future__ import annotations

from typing import Any

from tests.api.contract.described import DOCUMENT

_FORMATS = {
    "uuid": "00000000-0000-4000-8000-00000000abcd",
    "date-time": "2026-12-01T09:00:00Z",
    "date": "2026-12-25",
}


def least(schema: dict[str, Any]) -> Any:
    """Give a value of the schema with nothing that may be left out."""
    if "default" in schema:
        return schema["default"]
    if "$ref" in schema:
        return least(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "const" in schema:
        return schema["const"]
    for key in ("examples", "enum"):
        if key in schema:
            return schema[key][0]
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return least(schema[key][0])
    return _of_type(schema)


def _of_type(schema: dict[str, Any]) -> Any:
    kind = schema.get("type", "object")
    match kind[0] if isinstance(kind, list) else kind:
        case "object":
            required = schema.get("required", [])
            return {name: least(schema["properties"][name]) for name in required}
        case "array":
            return [least(schema["items"]) for _ in range(schema.get("minItems", 0))]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case "null":
            return None
    return _FORMATS.get(schema.get("format", ""), "word")
