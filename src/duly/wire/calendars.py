"""Calendars as they cross HTTP."""

from __future__ import annotations

from duly.wire.schema.schedule_schema import CalendarFields
from duly.wire.schema.shapes import Told


class Calendar(Told, frozen=True):
    """A calendar that is kept."""

    name: str
    definition: CalendarFields


class KeptCalendar(Calendar, frozen=True):
    """A calendar that was put, and how many schedules were armed anew by it."""

    schedules: int


class Calendars(Told, frozen=True):
    """All calendars of a tenant."""

    items: list[Calendar]
