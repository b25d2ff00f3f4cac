# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""Notifications: channels, rules, and past notifications."""

from __future__ import annotations

from collections.abc import Iterator

from duly.client.requests import getting, listing, path, posting, putting, removing
from duly.client.synchronous.transport import Resource
from duly.domain.notifications.channel import ChannelSpec
from duly.domain.notifications.rule import RuleSpec
from duly.wire.notifications import Channel, ChannelTest, Notification, NotificationRule


class Channels(Resource):
    """Channels, by name."""

    def list(self) -> Iterator[Channel]:
        """Return all channels, each with its latest delivery."""
        return self._transport.pages(listing(path("channels"), Channel))

    def get(self, name: str) -> Channel:
        """Read a channel. Raises NotFound."""
        return self._transport.send(getting(path("channels", name), Channel))

    def put(self, name: str, channel: ChannelSpec) -> Channel:
        """Store a channel, new or changed. Raises Invalid."""
        return self._transport.send(putting(path("channels", name), Channel, channel))

    def delete(self, name: str) -> None:
        """Delete a channel that no rule uses. Raises NotFound, Invalid."""
        self._transport.send(removing(path("channels", name)))

    def test(self, name: str) -> ChannelTest:
        """Send a test; its run says how that went. Raises NotFound."""
        return self._transport.send(posting(path("channels", name, "test"), ChannelTest))


class Notifications(Resource):
    """Rules of notifications, by name, and past notifications."""

    def list(self, rule: str | None = None, *, page_size: int | None = None) -> Iterator[Notification]:
        """Return the notifications of all rules, or of one, the newest first; pages are read as they are needed."""
        return self._transport.pages(listing(path("notifications"), Notification, rule=rule, page_size=page_size))

    def rules(self) -> Iterator[NotificationRule]:
        """Return all rules."""
        return self._transport.pages(listing(path("notification-rules"), NotificationRule))

    def get_rule(self, name: str) -> NotificationRule:
        """Read a rule. Raises NotFound."""
        return self._transport.send(getting(path("notification-rules", name), NotificationRule))

    def put_rule(self, name: str, rule: RuleSpec) -> NotificationRule:
        """Store a rule, new or changed. Raises Invalid."""
        return self._transport.send(putting(path("notification-rules", name), NotificationRule, rule))

    def delete_rule(self, name: str) -> None:
        """Delete a rule. Raises NotFound."""
        self._transport.send(removing(path("notification-rules", name)))
