"""The JSON schema of a file of schedules, for editors that complete and check it while it is written."""

from __future__ import annotations

from typing import Any

import msgspec

from duly.domain.jobs.manifest_shapes import CALENDARS_MAX, JOBS_MAX, ManifestShape, without_default_type


def json_schema() -> dict[str, Any]:
    """Give the schema, from the shapes that the reader follows."""
    schema = msgspec.json.schema(ManifestShape)
    schema["$defs"] = without_default_type(schema["$defs"])
    properties = schema["$defs"]["ManifestShape"]["properties"]
    properties["jobs"]["maxProperties"], properties["calendars"]["maxProperties"] = JOBS_MAX, CALENDARS_MAX
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Duly schedules", **schema}
