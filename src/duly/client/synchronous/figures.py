# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""Figures: what ended over time, how things stand, and what fires next."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from duly.client.requests import getting, path
from duly.client.synchronous.transport import Resource
from duly.wire.figures import ComingFires, JobDay, JobDays, Overview, Series


class Figures(Resource):
    """What the dashboard shows, for programs."""

    def overview(self) -> Overview:
        """Give how things stand, in four numbers, queue by queue, and what needs a person."""
        return self._line.ask(getting(path("overview"), Overview))

    def series(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step: int | None = None,
        queue: str | None = None,
    ) -> Series:
        """Give what ended over time, in steps of so many seconds: of one queue, or of all."""
        query: dict[str, object] = {"from": since, "to": until, "step": step, "queue": queue}
        return self._line.ask(getting(path("series"), Series, **query))

    def coming(self) -> ComingFires:
        """Give how many fires fall into each minute of the next hour."""
        return self._line.ask(getting(path("coming"), ComingFires))

    def days(self, job_id: UUID | str, *, days: int | None = None, zone: str | None = None) -> list[JobDay]:
        """Give what became of a schedule's occurrences, day by day of a time zone: UTC unless given."""
        return (self._line.ask(getting(path("jobs", job_id, "days"), JobDays, days=days, zone=zone))).items
