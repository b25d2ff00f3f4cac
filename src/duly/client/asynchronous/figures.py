"""Figures: what ended over time, how things stand, and what fires next."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from duly.client.asynchronous.transport import AsyncResource
from duly.client.requests import getting, path
from duly.wire.figures import ComingFires, JobDay, JobDays, Overview, Series


class AsyncFigures(AsyncResource):
    """What the dashboard shows, for programs."""

    async def overview(self) -> Overview:
        """Return how things stand, in four numbers, queue by queue, and what needs a person."""
        return await self._line.ask(getting(path("overview"), Overview))

    async def series(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step: int | None = None,
        queue: str | None = None,
    ) -> Series:
        """Return what ended over time, in steps of so many seconds: of one queue, or of all."""
        query: dict[str, object] = {"from": since, "to": until, "step": step, "queue": queue}
        return await self._line.ask(getting(path("series"), Series, **query))

    async def coming(self) -> ComingFires:
        """Return how many fires fall into each minute of the next hour."""
        return await self._line.ask(getting(path("coming"), ComingFires))

    async def days(self, job_id: UUID | str, *, days: int | None = None, zone: str | None = None) -> list[JobDay]:
        """Return what became of a schedule's occurrences, day by day of a time zone: UTC unless given."""
        return (await self._line.ask(getting(path("jobs", job_id, "days"), JobDays, days=days, zone=zone))).items
