# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""Calendars: the days and hours that schedules leave out, or keep to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from duly.client.paging import listing
from duly.client.requests import getting, path, putting, removing
from duly.client.synchronous.transport import Line
from duly.wire.calendars import Calendar, KeptCalendar


class Calendars:
    """Calendars, by name."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def list(self) -> Iterator[Calendar]:
        """Give all calendars."""
        return self._line.pages(listing(path("calendars"), Calendar))

    def get(self, name: str) -> Calendar:
        """Read a calendar. Raises NotFound."""
        return self._line.ask(getting(path("calendars", name), Calendar))

    def put(self, name: str, definition: Mapping[str, Any]) -> KeptCalendar:
        """Keep a calendar, new or changed; the schedules that use it are armed anew."""
        return self._line.ask(putting(path("calendars", name), KeptCalendar, definition))

    def delete(self, name: str) -> None:
        """Forget a calendar that no job uses. Raises NotFound, Invalid."""
        self._line.ask(removing(path("calendars", name)))
