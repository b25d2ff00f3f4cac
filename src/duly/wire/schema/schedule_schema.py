"""The shape of a schedule, as JSON Schema. The trigger library reads schedules itself; this is for those who write them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

Schema = dict[str, Any]

_MOMENT: Schema = {
    "type": "string",
    "description": "ISO 8601, with an offset or Z.",
    "examples": ["2026-12-01T09:00:00+01:00"],
}
_ZONE: Schema = {
    "type": "string",
    "description": "A tz database name with a slash, or UTC, or GMT.",
    "examples": ["Europe/Berlin"],
    "minLength": 1,
    "maxLength": 64,
}
_DURATION: Schema = {
    "type": "string",
    "description": "ISO 8601, such as PT5M or P1D.",
    "examples": ["PT5M"],
    "minLength": 2,
    "maxLength": 64,
}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _object(about: str, properties: Schema, required: list[str]) -> Schema:
    return {
        "type": "object",
        "description": about,
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _trigger(kind: str, about: str, required: Schema, optional: Schema | None = None) -> Schema:
    properties = {"type": {"const": kind, "type": "string"}, **required, **(optional or {})}
    return _object(about, properties, ["type", *required])


_TRIGGERS: dict[str, Schema] = {
    "TriggerAt": _trigger(
        "at",
        "Once, at a moment or after a delay: give one of `at` and `delay`.",
        {},
        {
            "at": {
                **_MOMENT,
                "description": "With an offset, or local with `tz`; to the microsecond. Past by more than a minute: AT_PAST.",
            },
            "delay": {
                "type": ["string", "number"],
                "description": "From the creation on, by the database's clock: ISO 8601 in clock units, or seconds.",
                "examples": ["PT30S", 0.25],
            },
            "tz": _or_null(_ZONE),
        },
    ),
    "TriggerCron": _trigger(
        "cron",
        "By the wall clock of a zone.",
        {"expr": {"type": "string", "minLength": 1, "maxLength": 256, "examples": ["0 8 * * MON-FRI"]}},
        {"tz": _or_null(_ZONE)},
    ),
    "TriggerInterval": _trigger(
        "interval",
        "Again and again, a period apart.",
        {"every": {**_DURATION, "description": "ISO 8601 in clock units, such as PT5M or PT24H."}},
        {
            "anchor": _or_null(_MOMENT),
            "mode": {"enum": ["fixed_rate", "fixed_delay", None]},
            "tz": _or_null(_ZONE),
        },
    ),
    "TriggerIso8601": _trigger(
        "iso8601",
        "A repeating interval.",
        {"text": {"type": "string", "minLength": 1, "maxLength": 256, "examples": ["R/2026-12-01T09:00:00Z/P1D"]}},
        {"tz": _or_null(_ZONE)},
    ),
    "TriggerRrule": _trigger(
        "rrule",
        "A recurrence rule (RFC 5545).",
        {
            "rrule": {"type": "string", "minLength": 1, "maxLength": 512, "examples": ["FREQ=MONTHLY;BYDAY=-1FR"]},
            "dtstart": {"type": "string", "examples": ["2026-12-01T09:00:00"]},
        },
        {"tz": _or_null(_ZONE), "exdates": {"type": ["array", "null"], "items": {"type": "string"}}},
    ),
    "TriggerText": _trigger(
        "text",
        "Plain English, from a closed grammar.",
        {"text": {"type": "string", "minLength": 1, "maxLength": 256, "examples": ["every weekday at 9:30am"]}},
        {"tz": _or_null(_ZONE)},
    ),
    "TriggerAny": _trigger(
        "any",
        "The union of several; equal instants count once.",
        {"of": {"type": "array", "items": {"$ref": "#/components/schemas/Trigger"}, "minItems": 2, "maxItems": 10}},
    ),
}

_CALENDAR = _object(
    "Days and hours at which jobs do, or do not, fire.",
    {
        "name": {
            "type": "string",
            "description": "The same as in the path; may be left out there.",
            "minLength": 1,
            "maxLength": 200,
        },
        "tz": _or_null(_ZONE),
        "dates": {"type": ["array", "null"], "items": {"type": "string", "format": "date"}},
        "windows": {
            "type": ["array", "null"],
            "items": _object(
                "A stretch of time; the end is not part of it.", {"start": _MOMENT, "end": _MOMENT}, ["start", "end"]
            ),
        },
        "weekly": {
            "type": ["array", "null"],
            "items": _object(
                "Hours of the week, in local time.",
                {
                    "days": {"type": "string", "examples": ["SAT,SUN"]},
                    "from": {"type": "string", "examples": ["00:00"]},
                    "to": {"type": "string", "examples": ["24:00"]},
                },
                ["days", "from", "to"],
            ),
        },
    },
    [],
)

COMPONENTS: dict[str, Schema] = {
    "CalendarDefinition": _CALENDAR,
    **_TRIGGERS,
    "Trigger": {
        "description": "A rule that gives the moments at which something fires.",
        "oneOf": [{"$ref": f"#/components/schemas/{name}"} for name in _TRIGGERS],
        "discriminator": {
            "propertyName": "type",
            "mapping": {
                schema["properties"]["type"]["const"]: f"#/components/schemas/{name}"
                for name, schema in _TRIGGERS.items()
            },
        },
    },
    "Schedule": _object(
        "When a job fires, and what happens when it cannot.",
        {
            "trigger": {"$ref": "#/components/schemas/Trigger"},
            "start": {**_or_null(_MOMENT), "description": "Nothing fires before it."},
            "end": {**_or_null(_MOMENT), "description": "Nothing fires from it on."},
            "max_runs": {"type": ["integer", "null"], "minimum": 1, "description": "Then the job is completed."},
            "jitter": {
                "oneOf": [
                    _object(
                        "Delays each fire by less than `max`.",
                        {"max": _DURATION, "per": {"enum": ["job", "occurrence", None]}},
                        ["max"],
                    ),
                    {"type": "null"},
                ]
            },
            "misfire": {
                "oneOf": [
                    _object(
                        "What becomes of occurrences that were noticed too late.",
                        {
                            "policy": {"enum": ["fire_once", "fire_all", "skip", None]},
                            "grace": _or_null(_DURATION),
                            "window": _or_null(_DURATION),
                            "rate": {"type": ["number", "null"], "exclusiveMinimum": 0},
                            "limit": {"type": ["integer", "null"], "minimum": 1},
                        },
                        [],
                    ),
                    {"type": "null"},
                ]
            },
            "overlap": {
                "oneOf": [
                    _object(
                        "What happens when one run is due while another is active.",
                        {
                            "policy": {"enum": ["skip", "buffer_one", "queue", "cancel_running", "allow", None]},
                            "limit": {"type": ["integer", "null"], "minimum": 1},
                        },
                        [],
                    ),
                    {"type": "null"},
                ]
            },
            "calendars": {
                "type": ["array", "null"],
                "items": _object(
                    "A calendar, and how it is used.",
                    {
                        "name": {"type": "string", "minLength": 1, "maxLength": 200},
                        "mode": {"enum": ["exclude", "include", None]},
                        "on_hit": {"enum": ["skip", "defer", None]},
                    },
                    ["name"],
                ),
            },
            "pause_on_failure": {
                "type": ["integer", "null"],
                "minimum": 1,
                "description": "Pause after so many failed runs in a row.",
            },
        },
        ["trigger"],
    ),
}

CalendarShape = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/CalendarDefinition"})]
ScheduleShape = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/Schedule"})]
TriggerShape = Annotated[dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/Trigger"})]
