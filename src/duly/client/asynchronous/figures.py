"""Figures: completed runs over time, the current state, and the next fires."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from duly.client.asynchronous.transport import AsyncResource
from duly.client.requests import getting, path
from duly.wire.figures import JobDay, JobDays, Overview, Series, UpcomingFires


class AsyncFigures(AsyncResource):
    """The figures of the dashboard."""

    async def overview(self) -> Overview:
        """Return the current state: four numbers, each queue, and what needs a person."""
        return await self._transport.send(getting(path("overview"), Overview))

    async def series(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step: int | None = None,
        queue: str | None = None,
    ) -> Series:
        """Return completed runs over time, in steps of so many seconds: of one queue, or of all."""
        query: dict[str, object] = {"from": since, "to": until, "step": step, "queue": queue}
        return await self._transport.send(getting(path("series"), Series, **query))

    async def upcoming(self) -> UpcomingFires:
        """Return the number of fires in each minute of the next hour."""
        return await self._transport.send(getting(path("upcoming"), UpcomingFires))

    async def days(self, job_id: UUID | str, *, days: int | None = None, zone: str | None = None) -> list[JobDay]:
        """Return the outcomes of a schedule's occurrences, day by day of a time zone: UTC unless given."""
        return (await self._transport.send(getting(path("jobs", job_id, "days"), JobDays, days=days, zone=zone))).items
