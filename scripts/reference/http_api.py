"""The pages of the HTTP API, one for each resource and one of shapes, from docs/openapi.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scripts.reference.markdown import cell, document, prose, table

DESCRIPTION = Path(__file__).parents[2] / "docs" / "openapi.json"
METHODS = ("get", "put", "post", "patch", "delete")
SHAPES = "api/shapes.md"
Json = Mapping[str, Any]
_SHAPES = """
The JSON objects that the operations take and give. A field with a `*` is required in a request and always there in a response.
"""
_MANY = 12  # choices of a field that are listed


def pages() -> dict[str, str]:
    """Give the text of each page by its path below docs/reference."""
    described = json.loads(DESCRIPTION.read_text())
    api = Api(described)
    found = {f"api/{_slug(tag)}.md": api.resource(tag) for tag in api.tags()}
    return found | {SHAPES: api.shapes()}


class Api:
    """A description of an API in OpenAPI, as pages show it."""

    def __init__(self, described: Json) -> None:
        self._described = described

    def tags(self) -> list[str]:
        """Name the resources, in the order of the description."""
        return list(dict.fromkeys(tag for _, _, operation in self._operations() for tag in operation["tags"][:1]))

    def resource(self, tag: str) -> str:
        """Write the page of a resource."""
        mine = [one for one in self._operations() if one[2]["tags"][0] == tag]
        said = next((one.get("description", "") for one in self._described.get("tags", ()) if one["name"] == tag), "")
        head = (
            f"The operations on {tag}. {said}".strip()
            + " [The HTTP API](../http-api.md) has what all operations share:"
            " keys, idempotency, errors, pages and filters."
        )
        rows = [
            (f"[`{method.upper()} {path}`](#{_slug(one['operationId'])})", _end(one["summary"]))
            for method, path, one in mine
        ]
        return document(
            tag[0].upper() + tag[1:], head, table(["operation", ""], rows), *(self._operation(*one) for one in mine)
        )

    def shapes(self) -> str:
        """Write the page of shapes."""
        schemas = self._described["components"]["schemas"]
        return document("Shapes", _SHAPES, *(self._shape(name, schemas[name]) for name in sorted(schemas)))

    def _operations(self) -> Iterator[tuple[str, str, Json]]:
        for path, item in self._described["paths"].items():
            for method in METHODS:
                if method in item:
                    yield method, path, item[method]

    def _operation(self, method: str, path: str, one: Json) -> str:
        parts = [
            f"## {one['operationId']}",
            f"`{method.upper()} {path}`",
            _end(one["summary"]),
            prose(one.get("description")),
        ]
        if scope := one.get("x-scope"):
            parts.append(f"Scope: `{scope}`.")
        rows = [self._parameter(self._resolved(parameter)) for parameter in one.get("parameters", ())]
        if rows:
            parts.append(table(["parameter", "in", "type", "meaning"], rows))
        if body := one.get("requestBody"):
            parts.append(f"Body: {self._content(self._resolved(body))}.")
        answers = [
            f"`{status}` {self._content(self._resolved(answer))}"
            for status, answer in one["responses"].items()
            if status[0] == "2"
        ]
        refused = [f"`{status}`" for status in one["responses"] if status[0] in "45"]
        parts.append(f"Response: {'; '.join(answers)}.{' Errors: ' + ', '.join(refused) + '.' if refused else ''}")
        return "\n\n".join(part for part in parts if part)

    def _parameter(self, one: Json) -> tuple[str, str, str, str]:
        return (
            f"`{one['name']}`{_star(one.get('required'))}",
            one["in"],
            self._type(one.get("schema", {})),
            one.get("description", ""),
        )

    def _content(self, holder: Json) -> str:
        kinds = {self._type(media.get("schema", {})): name for name, media in holder.get("content", {}).items()}
        return ", ".join(f"{kind} as `{name}`" for kind, name in kinds.items()) or "without a body"

    def _shape(self, name: str, schema: Json) -> str:
        parts = [f"## {name}", prose(schema.get("description"))]
        fields = dict(self._fields(schema))
        if fields:
            rows = [
                (f"`{field}`{_star(is_required)}", self._type(one), self._meaning(one))
                for field, (one, is_required) in fields.items()
            ]
            parts.append(table(["field", "type", "meaning"], rows))
        else:
            parts.append(self._type(schema, is_inside=True))
        return "\n\n".join(part for part in parts if part)

    def _fields(self, schema: Json) -> Iterator[tuple[str, tuple[Json, bool]]]:
        for part in schema.get("allOf", ()):
            yield from self._fields(self._resolved(part))
        for name, one in schema.get("properties", {}).items():
            yield name, (one, name in schema.get("required", ()))

    def _meaning(self, schema: Json) -> str:
        default = f" Default: `{json.dumps(schema['default'])}`." if schema.get("default") is not None else ""
        return cell(_end(schema.get("description", "")) + default).replace("<", "&lt;")

    def _type(self, schema: Json, is_inside: bool = False) -> str:
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return f"[{name}]({'' if is_inside else 'shapes.md'}#{name.lower()})"
        if len(schema.get("allOf", ())) == 1:
            return self._type(schema["allOf"][0], is_inside)
        if "const" in schema:
            return f"`{json.dumps(schema['const'])}`"
        if "enum" in schema:
            shown = [f"`{value}`" for value in schema["enum"][:_MANY]]
            return ", ".join(shown + ["…"] * (len(schema["enum"]) > _MANY))
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return " or ".join(dict.fromkeys(self._type(one, is_inside) for one in schema[key]))
        kinds = schema.get("type", "any")
        return " or ".join(
            self._plain(kind, schema, is_inside) for kind in ([kinds] if isinstance(kinds, str) else kinds)
        )

    def _plain(self, kind: str, schema: Json, is_inside: bool) -> str:
        if kind == "array":
            return f"list of {self._type(schema.get('items', {}), is_inside)}"
        if (
            kind == "object"
            and isinstance(schema.get("additionalProperties"), Mapping)
            and schema["additionalProperties"]
        ):
            return f"object of {self._type(schema['additionalProperties'], is_inside)}"
        return f"{kind} ({schema['format']})" if kind == "string" and "format" in schema else kind

    def _resolved(self, found: Json) -> Json:
        while "$ref" in found:
            node: Any = self._described
            for step in found["$ref"].removeprefix("#/").split("/"):
                node = node[step.replace("~1", "/")]
            found = node
        return found


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", text.lower())


def _star(is_required: object) -> str:
    return "*" if is_required else ""


def _end(text: str) -> str:
    return text if not text or text.rstrip().endswith((".", "?")) else f"{text.rstrip()}."
