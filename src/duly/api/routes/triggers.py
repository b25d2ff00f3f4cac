"""Schedules, tried out: the same code as the scheduler's says what they mean."""

from __future__ import annotations

from duly.api.operations import Answer, Call, Routes
from duly.clock import moment_of
from duly.domain.triggers.schedule.preview import preview_schedule
from duly.domain.triggers.schedule.timing import calendars_in, read_calendars
from duly.store.tables import jobs, schedules
from duly.wire.jobs.previews import Preview, PreviewRequest
from duly.wire.schema.shapes import Nothing

routes = Routes("triggers")


@routes.add(
    "POST",
    "/v1/triggers/preview",
    scope="jobs:read",
    body=PreviewRequest,
    answers={200: Preview},
    is_keyed=False,
)
async def preview_trigger(call: Call[Nothing, PreviewRequest]) -> Answer:
    """Say what a schedule means, in words and in its next fires; nothing is kept.

    A schedule that cannot be kept is answered too: `valid` is false, and `errors` says why.
    """
    asked = call.body
    names = calendars_in(asked.schedule)
    known = read_calendars(await schedules.calendars(call.database, call.tenant, names) if names else {})
    after = moment_of(call.clock.now()) if asked.after is None else asked.after
    job_id = None if asked.job_id is None else str(asked.job_id)
    least = await jobs.least_period(call.database, call.tenant)
    return Answer(200, Preview(**preview_schedule(asked.schedule, after, asked.n, job_id, known, least)))
