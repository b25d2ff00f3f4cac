"""Calendars: the days and hours that schedules leave out, or keep to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from duly.client.asynchronous.transport import AsyncLine
from duly.client.paging import listing
from duly.client.requests import getting, path, putting, removing
from duly.wire.calendars import Calendar, KeptCalendar


class AsyncCalendars:
    """Calendars, by name."""

    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    def list(self) -> AsyncIterator[Calendar]:
        """Give all calendars."""
        return self._line.pages(listing(path("calendars"), Calendar))

    async def get(self, name: str) -> Calendar:
        """Read a calendar. Raises NotFound."""
        return await self._line.ask(getting(path("calendars", name), Calendar))

    async def put(self, name: str, definition: Mapping[str, Any]) -> KeptCalendar:
        """Keep a calendar, new or changed; the schedules that use it are armed anew."""
        return await self._line.ask(putting(path("calendars", name), KeptCalendar, definition))

    async def delete(self, name: str) -> None:
        """Forget a calendar that no job uses. Raises NotFound, Invalid."""
        await self._line.ask(removing(path("calendars", name)))
