"""Jobs that run for events: a trigger without moments of its own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any

import msgspec

from duly.domain.triggers.compiled import Compiled
from duly.domain.triggers.schedule.schedules import Overlap, Schedule

ON_EVENT = "on_event"
# The moment that never comes, as the database driver writes `infinity`: it is never compared.
NEVER = datetime.max  # noqa: DTZ901 - it has no zone there either
_COHORT_BITS = 62


class OnEvent(Compiled):
    """Fires for every matching event."""

    fires_per_hour_max = 0

    def __init__(self, kind: str, source: str | None) -> None:
        self._kind = kind
        self._source = source

    @property
    def canonical(self) -> dict[str, Any]:
        """The event match."""
        return {"type": self._kind} if self._source is None else {"type": self._kind, "source": self._source}

    def describe(self) -> str:
        origin = "" if self._source is None else f" from {self._source}"
        return f"On each event {self._kind}{origin}"

    def next_after(self, moment: datetime) -> None:
        """Return None: the moment of an event is not known ahead."""
        return

    def latest_at_or_before(self, moment: datetime) -> None:
        """Return None: an event is not a moment of a rule."""
        return


def is_on_event(shape: Mapping[str, Any]) -> bool:
    """Return whether a shape waits for events."""
    return ON_EVENT in shape


def event_schedule(shape: Mapping[str, Any]) -> Schedule:
    """Compile a schedule for events. Each event is a run of its own, whatever runs already."""
    match = shape[ON_EVENT]
    return Schedule(OnEvent(match["type"], match.get("source")), overlap=Overlap("allow"))


def event_cohort(shape: Mapping[str, Any]) -> int:
    """Return a number that jobs with the same match share."""
    text = msgspec.json.encode(event_schedule(shape).trigger.canonical, order="deterministic")
    return int.from_bytes(sha256(b"on_event " + text).digest()[:8], "big") >> 64 - _COHORT_BITS
