"""The schemas of the description: exact, shared by name, and plain enough for generators of clients."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from duly.domain.fields import DURATION_PATTERN, NAME_PATTERN, Duration, Moment, Name, Payload, Priority, Tags
from duly.domain.runs.run import NOT_BLANK
from duly.wire.jobs import manifests
from duly.wire.jobs.verbs import JobState
from duly.wire.schema.schedule_schema import COMPONENTS
from duly.wire.schema.shapes import ResponseModel

Schema = dict[str, Any]

REFERENCE = "#/components/schemas/{name}"
_REFERRED = re.compile(r"#/components/schemas/(.+)")
_NULL = {"type": "null"}


class Schemas:
    """The schemas of all shapes that operations name."""

    def __init__(self, shapes: Sequence[Any]) -> None:
        several = list({repr(shape): shape for shape in shapes}.values())
        schemas, components = msgspec.json.schema_components(several, ref_template=REFERENCE)
        always = {name: kind for name, kind in _responses() if not kind.__struct_config__.omit_defaults}
        whole = {name: _all_required(schema) if name in always else schema for name, schema in components.items()}
        plain: dict[str, Schema] = _plain(manifests.COMPONENTS | COMPONENTS | whole)
        if "PutJob" in plain:
            plain["JobPatch"] = _patch(_writable(plain["PutJob"]), plain)
        self._schemas = {repr(shape): _shared(_plain(schema)) for shape, schema in zip(several, schemas, strict=True)}
        self._components: dict[str, Schema] = _SIMPLE | {name: _shared(schema) for name, schema in plain.items()}

    def of(self, shape: Any) -> Schema:
        """Return the schema of a shape: in most cases a reference."""
        schema: Schema = self._schemas[repr(shape)]
        return schema

    def resolve(self, schema: Schema) -> Schema:
        """Return the component that a schema refers to, or the schema itself."""
        found: Schema = self._components.get(_name_in(schema), schema)
        return found

    def fields(self, shape: type) -> tuple[Mapping[str, Schema], Sequence[str]]:
        """Return the fields of a shape as query parameters, which are there or not, and never null; and which are required."""
        schema = self._components.get(shape.__name__, {})
        fields = {name: _never_null(field) for name, field in schema.get("properties", {}).items()}
        return fields, schema.get("required", [])

    def properties(self, shape: Any) -> Mapping[str, Schema]:
        """Return the properties of the shape of a response."""
        properties: Mapping[str, Schema] = self.resolve(self.of(shape)).get("properties", {})
        return properties

    def items(self, shape: Any) -> Mapping[str, Schema]:
        """Return the properties of an item of a page; none when the shape is no page."""
        properties: Mapping[str, Schema] = self.resolve(self.properties(shape).get("items", {}).get("items", {})).get(
            "properties", {}
        )
        return properties

    def used_in(self, document: Any) -> dict[str, Schema]:
        """Return the components that a document refers to, directly or through others."""
        found: dict[str, Schema] = {}
        wanted = set(_references(document))
        while missing := wanted - found.keys():
            found |= {name: self._components[name] for name in sorted(missing)}
            wanted |= {reference for name in missing for reference in _references(self._components[name])}
        return dict(sorted(found.items()))


def _responses() -> Iterator[tuple[str, Any]]:
    kinds = list(ResponseModel.__subclasses__())
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        yield kind.__name__, kind


def _all_required(schema: Schema) -> Schema:
    """Require every field, as a response that writes defaults has them all, and leave durations as text."""
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
    """Remove titles, a type beside a reference, and null as a default, which say nothing.

    The pattern of a name states all that is checked, not only what the reader of its shape checks.
    """
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    is_title = isinstance(schema.get("title"), str)
    left_out = {
        *(("title",) if is_title else ()),
        *(("type",) if "$ref" in schema else ()),
        *(("default",) if schema.get("default", "") is None else ()),
    }
    whole: Schema = {"pattern": NAME_PATTERN} if schema.get("pattern") == NOT_BLANK else {}
    if schema.get("type") == "object" and not {"properties", "additionalProperties"} & schema.keys():
        whole = {"additionalProperties": True}  # Some generators take the lack of it for an empty object.
    if isinstance(one := schema.get("enum"), list) and len(one) == 1 and isinstance(one[0], str):
        left_out, whole = {*left_out, "enum"}, {"type": "string", "const": one[0]}
    return {key: _plain(value) for key, value in schema.items() if key not in left_out} | whole


def _simple(kind: Any) -> Schema:
    plain: Schema = _plain(msgspec.json.schema(kind))
    return plain


# Kinds of fields that have a name of their own in the description.
_SIMPLE = {
    "Duration": _simple(Duration),
    "JobState": _simple(JobState),
    "Moment": _simple(Moment),
    "Name": _simple(Name),
    "Payload": _simple(Payload),
    "Priority": _simple(Priority),
    "Tags": _simple(Tags),
}


def _bare(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key not in ("description", "examples", "default")}


_NAMED = [(name, _bare(schema)) for name, schema in _SIMPLE.items()]


def _shared(schema: Any) -> Any:
    """Put a reference wherever a named kind of field is written out; a description or default of its own stays beside it."""
    if isinstance(schema, list):
        return [_shared(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    bare = _bare(schema)
    for name, named in _NAMED:
        if bare == named:
            own = {key: schema[key] for key in schema.keys() - bare.keys() if schema[key] != _SIMPLE[name].get(key)}
            return {"$ref": REFERENCE.format(name=name), **own}
    return {key: _shared(value) for key, value in schema.items()}


def _patch(schema: Schema, components: Mapping[str, Schema]) -> Schema:
    """Describe a merge patch: any part of what is described, and null to remove what is optional."""
    inner = components.get(_name_in(schema), schema)
    if "oneOf" in inner or "discriminator" in inner:  # One may be patched into another: only the whole can be checked.
        return {"type": "object", "additionalProperties": True}
    if kinds := inner.get("anyOf"):
        return {**inner, "anyOf": [_patch(kind, components) for kind in kinds]}
    if "properties" not in inner:
        return {key: value for key, value in inner.items() if key != "default"}
    required = inner.get("required", [])
    properties = {
        name: _patch(part, components) if name in required else _or_null(_patch(part, components))
        for name, part in inner["properties"].items()
    }
    return {key: value for key, value in inner.items() if key != "required"} | {"properties": properties}


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


def _name_in(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _references(document: Any) -> Iterable[str]:
    if isinstance(document, dict):
        if isinstance(reference := document.get("$ref"), str) and (found := _REFERRED.fullmatch(reference)):
            yield found[1]
        for value in document.values():
            yield from _references(value)
    elif isinstance(document, list):
        for value in document:
            yield from _references(value)
