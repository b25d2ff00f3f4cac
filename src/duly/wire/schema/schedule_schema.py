"""The schemas of schedules, triggers and calendars, which are read from plain values by the trigger library."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from duly.domain.triggers.spec import CalendarDefinition, Schedule, Trigger

_REFERENCE = "#/components/schemas/{name}"
(_, _TRIGGER, _), _FOUND = msgspec.json.schema_components(
    [Schedule, Trigger, CalendarDefinition], ref_template=_REFERENCE
)

for _schema in _FOUND.values():
    if "enum" in (_kind := _schema["properties"].get("type", {})):
        _schema["properties"]["type"] = {"type": "string", "const": _kind["enum"][0]}
COMPONENTS: dict[str, dict[str, Any]] = {
    **_FOUND,
    "Trigger": {"description": "Rule for the times at which a job fires.", **_TRIGGER},
}
CalendarFields = Annotated[
    dict[str, Any], Meta(extra_json_schema={"$ref": _REFERENCE.format(name="CalendarDefinition")})
]
