"""Channels, rules and notifications as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta

from duly.domain.fields import Moment
from duly.domain.notifications.rule import RuleSpec
from duly.wire.pages import Items, Page, PageQuery
from duly.wire.schema.shapes import ResponseModel


class LatestDelivery(ResponseModel, frozen=True):
    """The latest delivery of a channel."""

    run_id: UUID
    created_at: Moment
    state: Annotated[str | None, Meta(description="State of its run; null: no longer kept.")]
    attempts: int
    reason: Annotated[str | None, Meta(description="Why its last attempt failed.")]


class Channel(ResponseModel, frozen=True):
    """A receiver of notifications. Secrets of its configuration are shown as ***."""

    name: str
    kind: Annotated[str, Meta(examples=["webhook", "email", "apprise"])]
    configuration: dict[str, Any]
    rules: Annotated[list[str], Meta(description="Rules that use it.")]
    updated_at: Moment
    latest: LatestDelivery | None


class Channels(Items[Channel], frozen=True):
    """All channels of a tenant, by name."""


class ChannelTest(ResponseModel, frozen=True):
    """A test that was sent: the run that delivers it."""

    run_id: UUID


class NotificationRule(ResponseModel, frozen=True):
    """A rule of notifications, and how many wait to be sent."""

    name: str
    definition: RuleSpec
    created_at: Moment
    updated_at: Moment
    source: Annotated[str | None, Meta(description="The file that it belongs to; null: made by hand.")]
    is_drifted: Annotated[bool, Meta(description="It was changed since its file was applied.")]
    sent_at: Annotated[Moment | None, Meta(description="Time of its latest delivery.")]
    waiting: Annotated[int, Meta(description="Notifications that no delivery carries yet, counted up to 100,001.")]


class NotificationRules(Items[NotificationRule], frozen=True):
    """All rules of a tenant, by name."""


class NotificationDelivery(ResponseModel, frozen=True):
    """A delivery of a notification: a run, with the state of that."""

    channel: str
    run_id: UUID
    state: str | None
    reason: str | None


class Notification(ResponseModel, frozen=True):
    """One thing that a rule noticed."""

    notification_id: int
    rule: str
    event: str
    text: Annotated[str, Meta(description="The event in words.")]
    subject: Annotated[str, Meta(description="The job, queue, destination or pause that it is about.")]
    job_id: UUID | None
    run_id: UUID | None
    attempt: int | None
    queue: str | None
    reason: str | None
    happened_at: Moment
    noticed_at: Moment
    deliveries: list[NotificationDelivery]


class NotificationQuery(PageQuery, frozen=True):
    """Notifications of one rule, or of all."""

    rule: Annotated[str, Meta(max_length=200)] | None = None


class NotificationList(Page[Notification], frozen=True):
    """A page of notifications, the newest first."""
