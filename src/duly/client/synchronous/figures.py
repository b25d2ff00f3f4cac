# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""Figures: completed runs over time, the current state, and the next fires."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from duly.client.requests import getting, path
from duly.client.synchronous.transport import Resource
from duly.wire.figures import JobDay, JobDays, Overview, Series, UpcomingFires


class Figures(Resource):
    """The figures of the dashboard."""

    def overview(self) -> Overview:
        """Return the current state: four numbers, each queue, and what needs a person."""
        return self._transport.send(getting(path("overview"), Overview))

    def series(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        step: int | None = None,
        queue: str | None = None,
    ) -> Series:
        """Return completed runs over time, in steps of so many seconds: of one queue, or of all."""
        query: dict[str, object] = {"from": since, "to": until, "step": step, "queue": queue}
        return self._transport.send(getting(path("series"), Series, **query))

    def upcoming(self) -> UpcomingFires:
        """Return the number of fires in each minute of the next hour."""
        return self._transport.send(getting(path("upcoming"), UpcomingFires))

    def days(self, job_id: UUID | str, *, days: int | None = None, zone: str | None = None) -> list[JobDay]:
        """Return the outcomes of a schedule's occurrences, day by day of a time zone: UTC unless given."""
        return (self._transport.send(getting(path("jobs", job_id, "days"), JobDays, days=days, zone=zone))).items
