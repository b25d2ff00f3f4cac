"""Calendars of schedules, and previews of schedules."""

from __future__ import annotations

from typing import Any

from duly.api.operations import Call, Routes
from duly.api.response import Response
from duly.clock import moment_of
from duly.domain.errors import InvalidOption, NotFound
from duly.domain.tenancy.audit import Action
from duly.domain.triggers.schedule.preview import preview_schedule
from duly.domain.triggers.schedule.timing import calendars_in, read_calendars
from duly.moves.schedules import calendars as moves
from duly.store.tables import jobs, schedules
from duly.wire.calendars import Calendar, Calendars, CalendarUser, SavedCalendar
from duly.wire.jobs.previews import Preview, PreviewRequest
from duly.wire.schema.schedule_schema import CalendarFields
from duly.wire.schema.shapes import Nothing

routes = Routes("calendars", reads="jobs:read", writes="jobs:write")
_CALENDAR_USERS_SHOWN = 50


@routes.add("GET /v1/calendars", responses={200: Calendars})
async def list_calendars(call: Call[Nothing, None]) -> Response:
    """List all calendars."""
    found = await schedules.calendars(call.database, call.tenant, None)
    return Response(200, Calendars(items=[Calendar(name=name, definition=found[name]) for name in sorted(found)]))


@routes.add("GET /v1/calendars/{name}", responses={200: Calendar})
async def read_calendar(call: Call[Nothing, None]) -> Response:
    """Read a calendar."""
    name = call.known_name
    found = await schedules.calendars(call.database, call.tenant, [name])
    if name not in found:
        raise NotFound(f"no calendar is named {name!r}")
    return Response(200, Calendar(name=name, definition=found[name], jobs=await _users(call, name)))


@routes.add(
    "PUT /v1/calendars/{name}",
    responses={200: SavedCalendar},
    refuses=("invalid_schedule", "invalid_option"),
    audits=(Action.CALENDAR_SAVED,),
)
async def put_calendar(call: Call[Nothing, CalendarFields]) -> Response:
    """Store a calendar, new or changed. The schedules that use it are rearmed."""
    name = call.name
    definition = {"name": name, **call.body}
    if definition["name"] != name:
        raise InvalidOption(
            f"the path names the calendar {name!r} and the body {definition['name']!r}; use the same name in both"
        )
    kept = await moves.put_calendar(call.database, definition, call.tenant)
    users = await _users(call, name)
    return Response(200, SavedCalendar(name=name, definition=definition, jobs=users, schedules=kept.schedules))


@routes.add(
    "DELETE /v1/calendars/{name}", responses={204: None}, refuses=("invalid_option",), audits=(Action.CALENDAR_DELETED,)
)
async def delete_calendar(call: Call[Nothing, None]) -> Response:
    """Delete a calendar that no job uses."""
    await moves.drop_calendar(call.database, call.known_name, call.tenant)
    return Response(204)


async def _users(call: Call[Any, Any], name: str) -> list[CalendarUser]:
    users = await schedules.using_calendar(call.database, call.tenant, name, None, _CALENDAR_USERS_SHOWN)
    return [CalendarUser.of(one) for one in users]


trigger_routes = Routes("triggers", reads="jobs:read", writes="jobs:write")


@trigger_routes.add(
    "POST /v1/triggers/preview",
    scope="jobs:read",
    responses={200: Preview},
    takes_key=False,
    unaudited="It changes nothing.",
)
async def preview_trigger(call: Call[Nothing, PreviewRequest]) -> Response:
    """Describe a schedule, in words and by its next fires; nothing is stored.

    An invalid schedule is answered too: `valid` is false, and `errors` says why.
    """
    requested = call.body
    names = calendars_in(requested.schedule)
    known = read_calendars(await schedules.calendars(call.database, call.tenant, names) if names else {})
    after = moment_of(call.clock.now()) if requested.after is None else requested.after
    job_id = None if requested.job_id is None else str(requested.job_id)
    least = await jobs.least_period(call.database, call.tenant)
    return Response(200, Preview(**preview_schedule(requested.schedule, after, requested.n, job_id, known, least)))
