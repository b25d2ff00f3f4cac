"""Versions of a job's definition, as they cross HTTP."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from msgspec import Meta

from duly.domain.fields import Moment, Payload
from duly.domain.jobs.spec import JobRules
from duly.wire.jobs.definitions import JobTarget
from duly.wire.pages import Items, Page
from duly.wire.schema.shapes import RequestModel, ResponseModel


class JobVersion(JobRules, ResponseModel, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """One version of a job's definition. The current one has not been replaced."""

    version: int
    created_at: Moment
    replaced_at: Moment | None
    owner: Annotated[str, Meta(description="Owner of the job at that version: api, code or file.")]
    source: str | None
    request_id: Annotated[str | None, Meta(description="Id of the last request that had one.")]
    target: JobTarget
    payload: Payload | None


class JobVersionList(Page[JobVersion], frozen=True):
    """A page of versions, the newest first; the last hundred before the current one are kept."""


class MovedFire(ResponseModel, frozen=True):
    """A next fire that new time zone data has moved by more than a minute; without a next moment none is left."""

    job_id: UUID
    name: str | None
    was_at: Moment
    next_at: Moment | None
    tzdb: Annotated[str, Meta(description="Version of the time zone data.", examples=["2026b"])]
    moved_at: Moment


class MovedFires(Items[MovedFire], frozen=True):
    """Next fires that were moved, the newest first."""


class MovedQuery(RequestModel, frozen=True):
    """The job of the moved fires; without one, all."""

    job_id: UUID | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 50
