"""The JSON schema of a file of schedules, for editors: that of its structs, with the short forms."""

from __future__ import annotations

from typing import Any

import msgspec

from duly.domain.jobs.manifest_shapes import ManifestSpec, ScheduleEntry

Schema = dict[str, Any]

_NAME = {"type": "string", "description": "Short for a function: the name of its handler."}
_ENGLISH = {"type": "string", "description": "A schedule in English, such as `every day at 9am`."}
_GOAL = {"type": "string", "description": "Short form: a URL, or the name of a job."}
_SHORT = {"target": _NAME, "on_end": _GOAL, "on_failure": _GOAL}
# Structs that a file writes differently than HTTP does.
_ENTRIES = ("JobEntry", "NodeSpec")  # where an empty key counts as left out
OF_FILES = frozenset(
    (
        "ManifestSpec",
        "JobEntry",
        "Defaults",
        "ScheduleEntry",
        "NodeSpec",
        "WorkflowTarget",
        "FunctionTarget",
        "CalendarSpec",
    )
)


def json_schema() -> Schema:
    """Return the schema, from the structs that the reader follows."""
    (reference, _), found = components("#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Duly schedules",
        **reference,
        "$defs": found,
    }


def components(template: str) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
    """Return the schemas of a file and of each struct in it, by name."""
    kinds, found = msgspec.json.schema_components([ManifestSpec, ScheduleEntry], ref_template=template)
    for name in OF_FILES:
        properties, required = found[name]["properties"], found[name].get("required", [])
        for field in _SHORT.keys() & properties.keys():
            properties[field] = _or(properties[field], _SHORT[field])
        for field in properties.keys() - {*required, "type"} if name in _ENTRIES else ():
            properties[field] = _or(properties[field], {"type": "null"})
    function, entry = found["FunctionTarget"], found["JobEntry"]["properties"]
    function["required"] = [name for name in function["required"] if name != "type"]
    entry["schedule"] = {"anyOf": [kinds[1], _ENGLISH]}
    del entry["name"]
    return kinds, found


def _or(schema: Schema, short: Schema) -> Schema:
    kinds = schema.get("anyOf", [schema])
    around = {key: value for key, value in schema.items() if key != "anyOf"} if "anyOf" in schema else {}
    return schema if short in kinds else {**around, "anyOf": [*kinds, short]}
