"""Calendars: the days and hours that schedules leave out, or keep to."""

from __future__ import annotations

from typing import Any

from duly.api.operations import Answer, Call, Routes
from duly.domain.errors import InvalidOption, NotFound
from duly.moves.schedules.calendars import drop_calendar, put_calendar
from duly.store.tables import schedules
from duly.wire.calendars import Calendar, Calendars, KeptCalendar
from duly.wire.schema.schedule_schema import CalendarFields
from duly.wire.schema.shapes import Nothing

routes = Routes("calendars")


@routes.add("GET", "/v1/calendars", scope="jobs:read", answers={200: Calendars})
async def list_calendars(call: Call[Nothing, None]) -> Answer:
    """List all calendars."""
    found = await schedules.calendars(call.database, call.tenant, None)
    return Answer(200, Calendars(items=[Calendar(name=name, definition=found[name]) for name in sorted(found)]))


@routes.add("GET", "/v1/calendars/{name}", scope="jobs:read", answers={200: Calendar})
async def read_calendar(call: Call[Nothing, None]) -> Answer:
    """Read a calendar."""
    name = call.known_name
    found = await schedules.calendars(call.database, call.tenant, [name])
    if name not in found:
        raise NotFound(f"no calendar is named {name!r}")
    return Answer(200, Calendar(name=name, definition=found[name]))


@routes.add(
    "PUT",
    "/v1/calendars/{name}",
    scope="jobs:write",
    body=CalendarFields,
    answers={200: KeptCalendar},
    refuses=("invalid_schedule", "invalid_option"),
)
async def keep_calendar(call: Call[Nothing, dict[str, Any]]) -> Answer:
    """Keep a calendar, new or changed. The schedules that use it are armed anew."""
    name = call.name
    definition = {"name": name, **call.body}
    if definition["name"] != name:
        raise InvalidOption(f"the path names the calendar {name!r} and the body {definition['name']!r}; name one")
    kept = await put_calendar(call.database, definition, call.tenant)
    return Answer(200, KeptCalendar(name=name, definition=definition, schedules=kept.schedules))


@routes.add("DELETE", "/v1/calendars/{name}", scope="jobs:write", answers={204: None}, refuses=("invalid_option",))
async def delete_calendar(call: Call[Nothing, None]) -> Answer:
    """Forget a calendar that no job uses."""
    await drop_calendar(call.database, call.known_name, call.tenant)
    return Answer(204)
