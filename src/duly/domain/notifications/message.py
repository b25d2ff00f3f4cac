"""The message of a delivery: a subject, lines of text, and a CloudEvent. It never has a payload or a result in it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.counting import some
from duly.domain.diagnosis.explain.words import moment_text

SHOWN_MAX = 20  # of the notifications of one delivery; it says how many it left out
EVENT_TYPE = "duly.notification.v1"
_HAPPENED = {
    "failed": "job {} failed",
    "dead": "job {} gave up: its run is a dead letter",
    "recovered": "{} has recovered",
    "late": "job {} is late",
    "absent": "job {} did not run",
    "paused": "{} is paused",
    "queue_age": "queue {} is behind",
    "circuit_open": "destination {} fails: its circuit is open",
}


class Notification(msgspec.Struct, frozen=True):
    """One thing that a rule noticed."""

    notification_id: int
    rule: str
    event: str
    subject: str
    job_id: UUID | None
    run_id: UUID | None
    attempt: int | None
    queue: str | None
    reason: str | None
    happened_at: datetime
    noticed_at: datetime

    @property
    def sentence(self) -> str:
        """Say in a sentence what happened."""
        happened = _HAPPENED[self.event].format(self.subject)
        return happened if self.reason is None else f"{happened}: {self.reason}"

    @property
    def line(self) -> str:
        """Say in a line what happened, and when."""
        run = "" if self.run_id is None else f" (run {self.run_id})"
        return f"{moment_text(self.happened_at)}  {self.sentence}{run}"


class Message(msgspec.Struct, frozen=True):
    """The content of a delivery. `count` are all notifications that it carries, `shown` the first of them."""

    delivery_id: UUID
    rule: str | None  # none: it tests a channel
    channel: str
    count: int
    shown: Sequence[Notification]
    created_at: datetime

    @property
    def title(self) -> str:
        """The subject of a mail; one line."""
        if self.rule is None:
            return f"Duly: test of channel {self.channel}"
        what = self.shown[0].sentence if self.count == 1 and self.shown else some(self.count, "notification")
        return _one_line(f"Duly: {what}" if self.count == 1 else f"Duly: {what} of rule {self.rule}")

    @property
    def body(self) -> str:
        """The text."""
        if self.rule is None:
            return f"This is a test of channel {self.channel}. Nothing has happened.\n"
        left_out = self.count - len(self.shown)
        more = [f"… and {left_out:,} more: duly notify list --rule {self.rule}"] if left_out > 0 else []
        return "\n".join([*(_one_line(one.line, 700) for one in self.shown), *more, "", f"Rule: {self.rule}", ""])

    @property
    def event(self) -> dict[str, Any]:
        """The CloudEvent that a webhook receives."""
        return {
            "specversion": "1.0",
            "type": EVENT_TYPE,
            "source": "/v1/notifications",
            "id": str(self.delivery_id),
            "time": self.created_at,
            "datacontenttype": "application/json",
            "data": {
                "rule": self.rule,
                "channel": self.channel,
                "is_test": self.rule is None,
                "title": self.title,
                "count": self.count,
                "left_out": self.count - len(self.shown),
                "notifications": [{**msgspec.structs.asdict(one), "text": one.sentence} for one in self.shown],
            },
        }


def _one_line(text: str, characters_max: int = 200) -> str:
    line = " ".join(text.split())
    return line if len(line) <= characters_max else line[: characters_max - 1] + "…"
