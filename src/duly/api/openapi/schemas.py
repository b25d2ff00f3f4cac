"""The schemas of shapes, made exact: what is always there is required, what is never null does not say so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from duly.domain.fields import DURATION_PATTERN, NAME_PATTERN
from duly.domain.runs.run import NOT_BLANK
from duly.wire.jobs import manifests
from duly.wire.jobs.verbs import BACKFILL_NAMES
from duly.wire.schema.schedule_schema import COMPONENTS
from duly.wire.schema.shapes import Told

Schema = dict[str, Any]

REFERENCE = "#/components/schemas/{name}"
_REFERRED = re.compile(r"#/components/schemas/(.+)")
_NULL = {"type": "null"}


class Schemas:
    """The schemas of all shapes that operations name."""

    def __init__(self, shapes: Sequence[Any]) -> None:
        several = list({repr(shape): shape for shape in shapes}.values())
        schemas, components = msgspec.json.schema_components(several, ref_template=REFERENCE)
        always = {name: kind for name, kind in _told() if not kind.__struct_config__.omit_defaults}
        self._schemas = {repr(shape): _plain(schema) for shape, schema in zip(several, schemas, strict=True)}
        told = {name: _told_whole(schema) if name in always else schema for name, schema in components.items()}
        self._components: dict[str, Schema] = manifests.COMPONENTS | _plain(COMPONENTS | told)
        if "BackfillRequest" in self._components:
            self._components["BackfillRequest"] |= BACKFILL_NAMES
        if "PutJob" in self._components:
            self._components["JobPatch"] = {"title": "JobPatch"} | self._patch(_writable(self._components["PutJob"]))

    def of(self, shape: Any) -> Schema:
        """Return the schema of a shape: in most cases a reference."""
        schema: Schema = self._schemas[repr(shape)]
        return schema

    def fields(self, shape: type) -> tuple[Mapping[str, Schema], Sequence[str]]:
        """Return the fields of a shape as query parameters, which are there or not, and never null; and which are required."""
        schema = self._components.get(shape.__name__, {})
        fields = {name: _never_null(field) for name, field in schema.get("properties", {}).items()}
        return fields, schema.get("required", [])

    def properties(self, shape: Any) -> Mapping[str, Schema]:
        """Return the properties of a shape that is answered."""
        name = self.of(shape).get("$ref", "").rpartition("/")[2]
        properties: Mapping[str, Schema] = self._components.get(name, {}).get("properties", {})
        return properties

    def items(self, shape: Any) -> Mapping[str, Schema]:
        """Return the properties of what a page holds; none when the shape is no page."""
        reference = self.properties(shape).get("items", {}).get("items", {}).get("$ref", "")
        properties: Mapping[str, Schema] = self._components.get(reference.rpartition("/")[2], {}).get("properties", {})
        return properties

    def _patch(self, schema: Schema) -> Schema:
        """Describe a merge patch: any part of what is described, and null to take away what need not be there."""
        inner = self._components.get(schema.get("$ref", "").rpartition("/")[2], schema)
        if (
            "oneOf" in inner or "discriminator" in inner
        ):  # One may be patched into another: only the whole can be judged.
            return {"type": "object"}
        if kinds := inner.get("anyOf"):
            return {**inner, "anyOf": [self._patch(kind) for kind in kinds]}
        if "properties" not in inner:
            return {key: value for key, value in inner.items() if key != "default"}
        required = inner.get("required", [])
        properties = {
            name: self._patch(part) if name in required else _or_null(self._patch(part))
            for name, part in inner["properties"].items()
        }
        return {key: value for key, value in inner.items() if key not in ("required", "title")} | {
            "properties": properties
        }

    def used_in(self, document: Any) -> dict[str, Schema]:
        """Return the components that a document refers to, directly or through others."""
        found: dict[str, Schema] = {}
        wanted = set(_references(document))
        while missing := wanted - found.keys():
            found |= {name: self._components[name] for name in sorted(missing)}
            wanted |= {reference for name in missing for reference in _references(self._components[name])}
        return dict(sorted(found.items()))


def _told() -> Iterator[tuple[str, Any]]:
    kinds = list(Told.__subclasses__())
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        yield kind.__name__, kind


def _told_whole(schema: Schema) -> Schema:
    """Say that every field is always there, as it is where defaults are written too, and that durations are text."""
    if not schema.get("properties"):
        return schema
    properties = {name: _as_text(field) for name, field in schema["properties"].items()}
    return {**schema, "properties": properties, "required": list(properties)}


def _as_text(schema: Schema) -> Schema:
    kinds = [_as_text(kind) for kind in schema.get("anyOf", [])]
    is_duration = any(kind.get("pattern") == DURATION_PATTERN for kind in kinds)
    left = [kind for kind in kinds if not is_duration or kind != {"type": "number"}]
    return {**schema, "anyOf": left} if kinds else schema


def _plain(schema: Any) -> Any:
    """Take away what says nothing: a type beside a reference, and null as what an absent field means.

    Of a name, the pattern tells all that is checked, and not only what the reader of its shape does.
    """
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = {"type"} if "$ref" in schema else {"default"} if schema.get("default", "") is None else set()
    whole = {"pattern": NAME_PATTERN} if schema.get("pattern") == NOT_BLANK else {}
    return {key: _plain(value) for key, value in schema.items() if key not in left_out} | whole


def _writable(schema: Schema) -> Schema:
    """Leave out the fields that only the server writes."""
    properties = {name: field for name, field in schema["properties"].items() if not field.get("readOnly")}
    return {**schema, "properties": properties}


def _never_null(schema: Schema) -> Schema:
    kinds = schema.get("anyOf", [])
    if _NULL not in kinds:
        return schema
    rest = [kind for kind in kinds if kind != _NULL]
    around = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**rest[0], **around} if len(rest) == 1 else {**around, "anyOf": rest}


def _or_null(schema: Schema) -> Schema:
    kinds = schema.get("anyOf", [schema])
    return schema if _NULL in kinds else {"anyOf": [*kinds, _NULL]}


def _references(document: Any) -> Iterable[str]:
    if isinstance(document, dict):
        if isinstance(reference := document.get("$ref"), str) and (found := _REFERRED.fullmatch(reference)):
            yield found[1]
        for value in document.values():
            yield from _references(value)
    elif isinstance(document, list):
        for value in document:
            yield from _references(value)
