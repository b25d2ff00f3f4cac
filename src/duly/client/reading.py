"""Reading of responses by a client that may be older: unknown fields are ignored, at any depth."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

T = TypeVar("T")


def read(body: bytes, shape: type[T]) -> T:
    """Decode JSON into a shape. Raises msgspec.MsgspecError."""
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.ValidationError:  # shapes of requests refuse unknown fields, also within responses
        return msgspec.convert(_known(msgspec.json.decode(body), _kind(cast("Hashable", shape))), shape)


@lru_cache(maxsize=256)
def _kind(shape: Any) -> inspect.Type:
    return inspect.type_info(shape)


def _known(value: Any, kind: inspect.Type) -> Any:
    """Return a value without the fields that its shape does not have."""
    match kind:
        case inspect.Metadata():
            return _known(value, kind.type)
        case inspect.UnionType():
            return _known_of_union(value, kind)
        case inspect.StructType() if isinstance(value, dict):
            fields = {field.encode_name: field.type for field in kind.fields}
            tag = {kind.tag_field: value[kind.tag_field]} if kind.tag_field in value else {}
            return tag | {name: _known(item, fields[name]) for name, item in value.items() if name in fields}
        case inspect.ListType() if isinstance(value, list):
            return [_known(item, kind.item_type) for item in value]
        case inspect.DictType() if isinstance(value, dict):
            return {name: _known(item, kind.value_type) for name, item in value.items()}
    return value


def _known_of_union(value: Any, union: inspect.UnionType) -> Any:
    kinds = [one.type if isinstance(one, inspect.Metadata) else one for one in union.types]
    structs = [kind for kind in kinds if isinstance(kind, inspect.StructType)]
    if isinstance(value, dict):
        tagged = [kind for kind in structs if kind.tag_field is not None and value.get(kind.tag_field) == kind.tag]
        chosen = cast("list[inspect.Type]", tagged or structs[:1])
    else:
        chosen = [kind for kind in kinds if isinstance(kind, inspect.ListType)]
    return _known(value, chosen[0]) if chosen else value
