"""Kinds of fields that specs and requests share: names, numbers, moments and durations as they are in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from duly.domain.runs.run import NAME_CHARACTERS_MAX, NOT_BLANK

TAGS_MAX = 32

# Schemas state these patterns; the domain checks the values, more closely than a pattern that every dialect reads can.
_CONTROL = r"\u0000-\u001f\u007f-\u009f"
TEXT_PATTERN = rf"^[^{_CONTROL}]+$"
NAME_PATTERN = rf"^ *[^ {_CONTROL}][^{_CONTROL}]*$"
NAME_WITHOUT_SLASH_PATTERN = rf"^ *[^ /{_CONTROL}][^/{_CONTROL}]*$"
DURATION_PATTERN = r"^P(\d+W)?(\d+D)?(T(\d+H)?(\d+M)?(\d+(\.\d{1,6})?S)?)?$"

PRINTABLE = {"pattern": TEXT_PATTERN}
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=NAME_CHARACTERS_MAX,
        pattern=NOT_BLANK,
        description="1 to 200 printable characters, not all of them spaces.",
    ),
]
Priority = Annotated[int, Meta(ge=0, le=9, description="0 goes first, 9 last; 5 is the default.")]
Moment = Annotated[datetime, Meta(tz=True, description="RFC 3339: any offset is accepted; responses use UTC.")]
Duration = Annotated[
    Annotated[str, Meta(extra_json_schema={"pattern": DURATION_PATTERN, "minLength": 3})] | float,
    Meta(description="ISO 8601 in clock units, such as PT30S or P1D, or a number of seconds.", examples=["PT30S", 30]),
]
Tags = Annotated[list[Name], Meta(max_length=TAGS_MAX, description="Tags to filter by.")]
Payload = Annotated[dict[str, Any], Meta(description="Named arguments of the target. At most 256 KiB, 64 levels deep.")]


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A struct that callers write. An unknown field is refused."""


def non_defaults(spec: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a spec that differ from their defaults, as plain values."""
    config = spec.__struct_config__
    found: dict[str, Any] = {} if config.tag is None else {str(config.tag_field): config.tag}
    for field in msgspec.structs.fields(spec):
        value = getattr(spec, field.name)
        if field.default_factory is not msgspec.NODEFAULT:
            is_said = value != field.default_factory()
        else:
            is_said = field.required or value != field.default
        if is_said:
            found[field.encode_name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return non_defaults(value)
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else msgspec.to_builtins(value)
