"""The examples of the description: one for each shape, made from its schema and from values by the names of fields."""

from __future__ import annotations

from typing import Any

import msgspec

from duly.api.openapi.schemas import Schema, Schemas

EXAMPLE_ID = "0190d6a4-7c1e-7b44-9d2c-3f5a8e1b6c70"
PATH_EXAMPLES: dict[str, Any] = {
    "name": "nightly-report",
    "tenant": 1,
    "key_id": "k3y2abcdef",
    "token": f"cb_{'0' * 32}_1_{'A' * 43}",
    "node": "extract",
}
_FORMATS = {
    "uuid": EXAMPLE_ID,
    "date-time": "2026-12-01T09:00:00Z",
    "date": "2026-12-25",
    "duration": "PT30S",
}
_FUNCTION = {"type": "function", "handler": "reports:build"}
_SCHEDULE = {"trigger": {"type": "cron", "expr": "0 9 * * *", "tz": "Europe/Berlin"}}
# Values by the name of their field, for fields of every shape that take them.
_FIELDS: dict[str, Any] = {
    "name": "nightly-report",
    "job_name": "nightly-report",
    "queue": "default",
    "source": "schedules.yaml",
    "handler": "reports:build",
    "payload": {"day": "2026-11-30"},
    "schedule": _SCHEDULE,
    "tags": ["reports"],
    "description": "every day at 09:00 Europe/Berlin",
    "reason": "maintenance of the database",
    "url": "https://example.com/hooks/reports",
    "owner": "api",
    "host": "worker-1",
    "version": 3,
    "attempts": 1,
    "attempt": 1,
    "fence": 7,
    "next_page_token": None,
    "zone": "Europe/Berlin",
    "tz": "Europe/Berlin",
    "error": None,
}
# Requests for which the least that their schema takes says too little.
_REQUESTS: dict[str, Any] = {
    "NewJob": {"name": "nightly-report", "target": _FUNCTION, "payload": {"day": "today"}, "schedule": _SCHEDULE},
    "PutJob": {"target": _FUNCTION, "schedule": _SCHEDULE, "retry": {"max_attempts": 5}},
    "JobPatch": {"schedule": {"trigger": {"expr": "30 9 * * *"}}, "tags": None},
    "NewWorkflow": {
        "name": "nightly-import",
        "nodes": {
            "extract": {"target": {"type": "function", "handler": "etl:extract"}},
            "load": {"target": {"type": "function", "handler": "etl:load"}, "depends_on": ["extract"]},
        },
    },
    "NodesToAdd": {
        "node": "extract",
        "fence": 7,
        "nodes": {"extract-part": {"target": {"type": "function", "handler": "etl:extract"}}},
    },
    "FileManifestSpec": {
        "source": "schedules.yaml",
        "jobs": {"nightly-report": {"target": "reports:build", "schedule": "every day at 9am"}},
    },
    "BackfillRequest": {"from": "2026-11-01T00:00:00Z", "to": "2026-11-08T00:00:00Z", "confirm": True},
    "CalendarDefinition": {"dates": ["2026-12-25", "2026-12-26"]},
    "WebhookChannel": {"kind": "webhook", "url": "https://example.com/hooks/alerts"},
    "RuleSpec": {"events": ["dead", "absent"], "channels": ["ops"], "filter": "tag:billing"},
    "DestinationRequest": {"url": "https://example.com/hooks/reports"},
    "PreviewRequest": {"schedule": _SCHEDULE},
    "BulkEdit": {"filter": "job:nightly-report", "payload": {"day": "2026-11-30"}},
    "ConcurrencyKeyLimits": {"limit": 3},
    "LimitRequest": {"queue": "default", "slots": 20},
    "LogEntries": {"run_id": EXAMPLE_ID, "fence": 7, "lines": [{"level": "info", "message": "wrote 120 rows"}]},
    "KeyRequest": {"name": "deploy", "scopes": ["jobs:read", "jobs:write"]},
    "TenantRequest": {"name": "analytics"},
    "NewWorker": {"name": "worker-1", "queues": ["default"], "handlers": ["reports:build"]},
    "CloudEvent": {
        "specversion": "1.0",
        "id": "8c0b",
        "source": "/uploads",
        "type": "file.uploaded",
        "data": {"path": "november.csv"},
    },
}
for _shape in ("Many", "ManyPaused", "ManyResumed", "ManyDeleted", "ManyReplayed"):
    _REQUESTS[_shape] = {"filter": "tag:reports", "dry_run": True}
for _shape in ("BulkReplay", "BulkRequest"):
    _REQUESTS[_shape] = {"filter": "job:nightly-report", "dry_run": True}


class Examples:
    """The examples that a document uses, each a component with the name of its shape."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self.used: dict[str, Schema] = {}

    def of(self, schema: Schema, *, is_request: bool = False) -> Schema:
        """Return a reference to the example of a shape, or the example where the shape has no name."""
        name = schema.get("$ref", "").rpartition("/")[2]
        if not name:
            return {"value": self._value(schema, ())}
        if name not in self.used:
            value = _REQUESTS.get(name) or self._object(self._schemas.resolve(schema), (name,), least=is_request)
            self.used[name] = {"value": value}
        return {"$ref": f"#/components/examples/{name}"}

    def lines(self) -> str:
        """Return an example of a body of lines."""
        return msgspec.json.encode({"target": _FUNCTION, "payload": {"day": "2026-11-30"}}).decode() + "\n"

    def event(self) -> str:
        """Return an example of a stream of server-sent events."""
        return 'id: 1\nevent: message\ndata: {"type": "run.succeeded"}\n\n'

    def _value(self, schema: Schema, around: tuple[str, ...]) -> Any:
        """Return a value of the schema; a shape inside itself ends in nothing."""
        name = schema.get("$ref", "").rpartition("/")[2]
        if name:
            if name in _REQUESTS:
                return _REQUESTS[name]
            schema, around = self._schemas.resolve(schema), (*around, name)
        for key in ("const", "default"):
            if key in schema:
                return schema[key]
        for key in ("examples", "enum"):
            if key in schema:
                return schema[key][0]
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._one_of(schema[key], around)
        return self._of_type(schema, around)

    def _one_of(self, kinds: list[Schema], around: tuple[str, ...]) -> Any:
        """Return a value of the first kind; null where that is an object or nothing that must be there."""
        return None if {"type": "null"} in kinds else self._value(kinds[0], around)

    def _of_type(self, schema: Schema, around: tuple[str, ...]) -> Any:
        match schema.get("type"):
            case "object":
                return self._object(schema, around)
            case "array":
                items = schema.get("items", {})
                is_inside_itself = items.get("$ref", "").rpartition("/")[2] in around
                least = schema.get("minItems", 0)
                return [self._value(items, around)] * max(least, 0 if is_inside_itself else 1)
            case "integer" | "number":
                return max(schema.get("minimum", 0), schema.get("exclusiveMinimum", 0) + 1, 1)
            case "boolean":
                return False
            case "string":
                return _FORMATS.get(schema.get("format", ""), "text"[: schema.get("maxLength", 4)])
        return None

    def _object(self, schema: Schema, around: tuple[str, ...], *, least: bool = False) -> dict[str, Any]:
        required = schema.get("required", [])
        fields = {
            name: field
            for name, field in schema.get("properties", {}).items()
            if name in required or not least or (name in _FIELDS and not field.get("readOnly"))
        }
        return {name: self._field(name, field, around) for name, field in fields.items()}

    def _field(self, name: str, schema: Schema, around: tuple[str, ...]) -> Any:
        if name in _FIELDS and self._takes(schema, _FIELDS[name]):
            return _FIELDS[name]
        return self._value(schema, around)

    def _takes(self, schema: Schema, value: Any) -> bool:
        """Return whether a schema may take a value, by its type."""
        known = self._schemas.resolve(schema)
        if "const" in known or "enum" in known:
            return False
        if kinds := known.get("anyOf", known.get("oneOf")):
            return any(self._takes(kind, value) for kind in kinds)
        return known.get("type") in _TYPES[type(value)] and "pattern" not in known


_TYPES: dict[type, tuple[str, ...]] = {
    str: ("string",),
    int: ("integer", "number"),
    dict: ("object",),
    list: ("array",),
    type(None): ("null",),
}
