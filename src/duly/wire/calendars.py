"""Calendars as they cross HTTP."""

from __future__ import annotations

from uuid import UUID

from duly.domain.fields import Moment
from duly.wire.pages import Items
from duly.wire.schema.schedule_schema import CalendarFields
from duly.wire.schema.shapes import ResponseModel


class CalendarUser(ResponseModel, frozen=True):
    """A job that uses a calendar, and its next moment."""

    job_id: UUID
    name: str | None
    scheduled_at: Moment


class Calendar(ResponseModel, frozen=True):
    """A stored calendar. Its `jobs`, up to 50, are listed where one calendar is requested."""

    name: str
    definition: CalendarFields
    jobs: list[CalendarUser] | None = None


class SavedCalendar(Calendar, frozen=True, kw_only=True):
    """A calendar that was stored, and how many schedules were rearmed."""

    schedules: int


class Calendars(Items[Calendar], frozen=True):
    """All calendars of a tenant."""
