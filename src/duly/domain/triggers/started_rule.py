"""Local rules with an explicit start: the start is exactly the moment that was given, even where the clock shows it twice."""

from __future__ import annotations

from duly.domain.triggers.local_rule import LocalRule
from duly.domain.triggers.moments import local_text, offset_text
from duly.domain.triggers.zones.zones import Zone


class StartedRule(LocalRule):
    """A fixed rule that begins at `start`, which the clock shows as `start_local`."""

    def __init__(self, start: int, zone: Zone) -> None:
        self.start = start
        self.zone = zone
        self.start_local = zone.local_at(start)

    def second_from(self, second: int) -> int | None:
        if second <= self.start and self.local_from(self.start_local, self.start_local + 1) is not None:
            return self.start
        return super().second_from(max(second, self.start + 1))

    def second_until(self, second: int) -> int | None:
        if second < self.start:
            return None
        found = super().second_until(second)
        # The start is the second of two equal local times: what was found is the first of them, or lies before.
        if found is None or found >= self.start:
            return found
        return self.start if self.local_from(self.start_local, self.start_local + 1) is not None else None

    def start_text(self) -> str:
        """Write the start with its offset."""
        return local_text(self.start_local) + offset_text(self.start_local - self.start)
