"""Breaking changes between two descriptions of an API. Pure: two OpenAPI documents in, sentences out.

A request may be given more freedom and an answer may tell more. What is taken away, asked for in addition, or narrowed in a
request, and what an answer no longer tells or tells in another type, breaks somebody.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
# Bounds of a value: a request must not be held to a closer one.
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems")


def breaks(old: Schema, new: Schema) -> list[str]:
    """Say everything that would break callers of `old`."""
    return [*Comparison(old, new).all()]


class Comparison:
    """Two documents, side by side."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old = old
        self._new = new
        self._seen: set[tuple[str, str, bool]] = set()

    def all(self) -> Iterator[str]:
        """Compare every operation."""
        for path, methods in self._old["paths"].items():
            for method, old in methods.items():
                new = self._new["paths"].get(path, {}).get(method)
                where = f"{method.upper()} {path}"
                if new is None:
                    yield f"{where}: is gone"
                else:
                    yield from self._operation(where, old, new)

    def _operation(self, where: str, old: Schema, new: Schema) -> Iterator[str]:
        yield from self._parameters(where, old.get("parameters", []), new.get("parameters", []))
        yield from self._bodies(where, old.get("requestBody"), new.get("requestBody"))
        for status, answer in old["responses"].items():
            if not status.startswith("2"):
                continue
            other = new["responses"].get(status)
            if other is None:
                yield f"{where}: no longer answers {status}"
            else:
                yield from self._contents(f"{where} {status}", answer, other, is_request=False)

    def _parameters(self, where: str, old: list[Schema], new: list[Schema]) -> Iterator[str]:
        before, after = (
            {(one["in"], one["name"]): one for one in (_resolved(document, each) for each in many)}
            for document, many in ((self._old, old), (self._new, new))
        )
        for key, one in before.items():
            if key not in after:
                yield f"{where}: the parameter {key[1]} is gone"
            else:
                yield from self._value(f"{where} {key[1]}", one["schema"], after[key]["schema"], is_request=True)
        for key, one in after.items():
            if one.get("required") and not before.get(key, {}).get("required"):
                yield f"{where}: the parameter {key[1]} is required now"

    def _bodies(self, where: str, old: Schema | None, new: Schema | None) -> Iterator[str]:
        if new is not None and new.get("required") and not (old or {}).get("required"):
            yield f"{where}: a body is required now"
        if old is not None and new is None:
            yield f"{where}: takes no body any more"
        elif old is not None and new is not None:
            yield from self._contents(where, old, new, is_request=True)

    def _contents(self, where: str, old: Schema, new: Schema, *, is_request: bool) -> Iterator[str]:
        for kind, content in old.get("content", {}).items():
            other = new.get("content", {}).get(kind)
            if other is None:
                yield f"{where}: {kind} is gone"
            else:
                yield from self._value(where, content["schema"], other["schema"], is_request=is_request)

    def _value(self, where: str, old: Any, new: Any, *, is_request: bool) -> Iterator[str]:
        names = str(_reference(old)), str(_reference(new))
        if names != ("None", "None"):
            if (*names, is_request) in self._seen:
                return
            self._seen.add((*names, is_request))
        before, after = _resolved(self._old, old), _resolved(self._new, new)
        yield from _types(where, self._kinds(self._old, before), self._kinds(self._new, after), is_request=is_request)
        yield from _enums(where, before, after, is_request=is_request)
        if is_request:
            yield from _bounds(where, before, after)
        yield from self._fields(where, before, after, is_request=is_request)
        if "items" in before and "items" in after:
            yield from self._value(f"{where}[]", before["items"], after["items"], is_request=is_request)
        yield from self._choices(where, before, after, is_request=is_request)

    def _choices(self, where: str, old: Schema, new: Schema, *, is_request: bool) -> Iterator[str]:
        """Compare the alternatives of a union that have a counterpart: the same name, or the same type."""
        others = {_label(self._new, one): one for one in _alternatives(new)}
        for one in _alternatives(old):
            if one is not old and (other := others.get(_label(self._old, one))) is not None and other is not new:
                yield from self._value(where, one, other, is_request=is_request)

    def _fields(self, where: str, old: Schema, new: Schema, *, is_request: bool) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        for name, one in before.items():
            if name not in after:
                yield f"{where}: the field {name} is gone"
            else:
                yield from self._value(f"{where}.{name}", one, after[name], is_request=is_request)
        required, now = set(old.get("required", [])), set(new.get("required", []))
        if is_request:
            yield from (f"{where}: the field {name} is required now" for name in sorted(now - required) if before)
        else:
            gone = sorted((required - now) & after.keys())
            yield from (f"{where}: the field {name} may be missing now" for name in gone)

    def _kinds(self, document: Schema, schema: Schema) -> set[str]:
        """Name the types that a value may have; nothing when any is allowed."""
        found: set[str] = set()
        for one in _alternatives(schema):
            known = _resolved(document, one)
            if known is not schema and _alternatives(known) != [known]:
                inner = self._kinds(document, known)
            else:
                kind = known.get("type")
                inner = set(kind) if isinstance(kind, list) else {kind} if kind else _kinds_of_values(known)
            if not inner:
                return set()
            found |= inner
        return found


def _reference(schema: Any) -> str | None:
    return schema.get("$ref") if isinstance(schema, Mapping) else None


def _resolved(document: Schema, schema: Any) -> Schema:
    while (reference := _reference(schema)) is not None:
        found: Any = document
        for step in reference.removeprefix("#/").split("/"):
            found = found[step]
        schema = found
    return schema if isinstance(schema, Mapping) else {}


def _alternatives(schema: Schema) -> list[Any]:
    return list(schema.get("anyOf") or schema.get("oneOf") or [schema])


def _label(document: Schema, schema: Any) -> str:
    known = _resolved(document, schema)
    return str(_reference(schema) or (known.get("type"), known.get("title"), known.get("const")))


def _kinds_of_values(schema: Schema) -> set[str]:
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return {"null" if value is None else "string" if isinstance(value, str) else "number" for value in values}


def _types(where: str, old: set[str], new: set[str], *, is_request: bool) -> Iterator[str]:
    """Compare types; no type at all is every type."""
    lost = (old - new if old else {"some"} if new else set()) if new else set()
    won = (new - old if new else {"any"}) if old else set()
    if "number" in new:  # An integer is a number, too.
        lost -= {"integer"}
    if "number" in old:
        won -= {"integer"}
    if is_request and lost:
        yield f"{where}: no longer takes {', '.join(sorted(lost))}"
    if not is_request and won:
        yield f"{where}: may be {', '.join(sorted(won))} now"


def _enums(where: str, old: Schema, new: Schema, *, is_request: bool) -> Iterator[str]:
    if "enum" not in old:
        if is_request and "enum" in new:
            yield f"{where}: takes certain values only now"
        return
    gone = [value for value in old["enum"] if value not in new.get("enum", old["enum"])]
    yield from (f"{where}: the value {value!r} is gone" for value in gone)


def _bounds(where: str, old: Schema, new: Schema) -> Iterator[str]:
    for bound in _LOWER:
        if bound in new and new[bound] > old.get(bound, float("-inf")):
            yield f"{where}: {bound} is {new[bound]} now"
    for bound in _UPPER:
        if bound in new and new[bound] < old.get(bound, float("inf")):
            yield f"{where}: {bound} is {new[bound]} now"
    if new.get("pattern") not in (None, old.get("pattern")):
        yield f"{where}: must match {new['pattern']} now"
