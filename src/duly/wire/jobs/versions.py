"""What the definition of a job was, version by version, as it crosses HTTP."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from duly.wire.callbacks import ToldCallback
from duly.wire.events import EventMatch
from duly.wire.jobs.definitions import Concurrency, JobTarget, RateLimit, RetryPolicy
from duly.wire.jobs.jobs import Payload
from duly.wire.pages import NextPageToken
from duly.wire.schema.schedule_schema import ScheduleShape
from duly.wire.schema.shapes import Moment, Told


class JobVersion(Told, frozen=True):
    """One version of a job's definition. The one that stands has not been replaced."""

    version: int
    made_at: Moment
    replaced_at: Moment | None
    owner: Annotated[str, Meta(description="Who kept the job then: api, code or file.")]
    source: str | None
    request_id: Annotated[str | None, Meta(description="The last request until then that named itself.")]
    name: str | None
    target: JobTarget
    queue: str
    priority: int
    payload: Payload | None
    schedule: ScheduleShape | None
    on_event: EventMatch | None
    retry: RetryPolicy | None
    timeout: str | None
    concurrency: Concurrency | None
    tags: list[str]
    on_done: ToldCallback | None = None
    on_dead: ToldCallback | None = None
    rate_limit: RateLimit | None = None
    expires_at: Moment | None = None
    expires_after: str | None = None


class JobVersionList(Told, frozen=True):
    """A page of versions, the newest first; the last hundred before the one that stands are kept."""

    items: list[JobVersion]
    next_page_token: NextPageToken
