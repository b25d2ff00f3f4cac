"""Events as they cross HTTP: those that come in, as CloudEvents 1.0, and what is asked of those that go out."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from duly.domain.fields import Moment, Name
from duly.domain.jobs.spec import Kind, Source
from duly.wire.pages import Items
from duly.wire.schema.shapes import RequestModel, ResponseModel

MEDIA_TYPE = "application/cloudevents+json"
BATCH_MEDIA_TYPE = "application/cloudevents-batch+json"
# What makes a request one in binary mode: the event's attributes are headers, and the body is its data, of any type.
BINARY_MARK = "ce-specversion"
EVENTS_MAX = 1_000
TYPES = (
    "duly.run.started.v1",
    "duly.run.succeeded.v1",
    "duly.run.failed.v1",
    "duly.run.dead.v1",
    "duly.run.cancelled.v1",
    "duly.run.expired.v1",
    "duly.run.skipped.v1",
    "duly.job.changed.v1",
    "duly.workflow.changed.v1",
    "duly.workflow.ended.v1",
    "duly.stream.gap.v1",
)


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event, as in CloudEvents 1.0. Its source and its id identify it: a repeated event creates nothing.

    Other attributes are extensions; they are allowed, and not stored.
    """

    specversion: Literal["1.0"]
    id: Name
    source: Source
    type: Kind
    time: Moment | None = None
    subject: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    datacontenttype: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    dataschema: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    data: Any = None
    data_base64: str | None = None


CloudEvents = Annotated[list[CloudEvent], Meta(max_length=EVENTS_MAX)]


class EventAccepted(ResponseModel, frozen=True):
    """The runs of an event; for a repeated event, those of the first time."""

    event_id: str
    duplicate: bool
    runs: list[UUID]


class EventsAccepted(Items[EventAccepted], frozen=True):
    """The result of each event of a batch, in its order."""


class StreamQuery(RequestModel, frozen=True):
    """Filters of the event stream."""

    types: (
        Annotated[
            str,
            Meta(max_length=500, description=f"Only these types, separated by commas: {', '.join(TYPES)}."),
        ]
        | None
    ) = None
    queue: Annotated[Name, Meta(description="Only events of runs and jobs of this queue.")] | None = None
