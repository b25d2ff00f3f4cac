"""Previews of schedules, as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta

from duly.domain.fields import Moment
from duly.domain.jobs.spec import ScheduleFields
from duly.domain.triggers.moments import DAY, FIRST_SECOND, LAST_SECOND, LAST_YEAR, second_of
from duly.wire.jobs.jobs import Fire
from duly.wire.schema.shapes import RequestModel, ResponseModel


class PreviewRequest(RequestModel, frozen=True):
    """A schedule, the moment to start from, the number of fires, and the job: its id decides about `H` and jitter."""

    schedule: ScheduleFields
    after: Moment | None = None
    n: Annotated[int, Meta(ge=1, le=1000)] = 10
    job_id: UUID | None = None

    def __post_init__(self) -> None:
        if self.after is not None and not FIRST_SECOND + DAY <= second_of(self.after) <= LAST_SECOND:
            raise ValueError(f"after is out of range; give a time before the year {LAST_YEAR + 1}")


class Preview(ResponseModel, frozen=True):
    """A schedule in words, and its next fires. Problems are listed under `errors`."""

    valid: bool
    canonical: dict[str, Any] | None
    description: str | None
    words: str | None
    kind: str | None
    tzdb: str
    next: list[Fire]
    errors: list[dict[str, Any]]
    warnings: list[dict[str, Any]]
