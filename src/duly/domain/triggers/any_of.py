"""Several triggers as one: the union of their occurrences, equal moments once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import merge
from itertools import groupby
from typing import Any

from duly.domain.triggers.compiled import Compiled, Kind, TriggerWarning
from duly.domain.triggers.errors import join
from duly.domain.triggers.moments import moment_of

MEMBERS_MIN, MEMBERS_MAX = 2, 10
_DENSE = 60


class AnyOf(Compiled):
    """Fires when any member does."""

    def __init__(self, members: Sequence[Compiled]) -> None:
        self.members = tuple({member.key: member for member in sorted(members, key=lambda member: member.key)}.values())
        self.kind = _kind(self.members)
        zones = {member.zone.name: member.zone for member in self.members}
        if len(zones) == 1:
            self.zone = self.members[0].zone
        self.fires_per_hour_max = sum(member.fires_per_hour_max for member in self.members)
        self.steps_per_count = len(self.members)

    @property
    def canonical(self) -> dict[str, Any]:
        """The members in one order, each once."""
        shapes = [member.canonical for member in self.members]
        return shapes[0] if len(shapes) == 1 else {"type": "any", "of": shapes}

    def describe(self) -> str:
        first, *others = (member.describe() for member in self.members)
        return "; and ".join([first, *(words[0].lower() + words[1:] for words in others)])

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the earliest of the members' next occurrences."""
        found = [after for member in self.members if (after := member.next_after(moment)) is not None]
        return min(found, default=None)

    def latest_at_or_before(self, moment: datetime) -> datetime | None:
        """Return the latest of the members' occurrences."""
        found = [last for member in self.members if (last := member.latest_at_or_before(moment)) is not None]
        return max(found, default=None)

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Return the occurrences from `start` on and before `end`, in order; each member is walked once."""
        return (found for found, _ in groupby(merge(*(member.between(start, end) for member in self.members))))

    @property
    def warnings(self) -> tuple[TriggerWarning, ...]:
        """The warnings of each member, and of all together."""
        found = [
            TriggerWarning(warning.code, warning.message, join(f"of[{index}]", warning.field))
            for index, member in enumerate(self.members)
            for warning in member.warnings
            if warning.code != "DENSE"
        ]
        if self.fires_per_hour_max > _DENSE:
            found.append(
                TriggerWarning("DENSE", f"together they fire up to {self.fires_per_hour_max} times an hour", "of")
            )
        return tuple(found)

    def note(self, second: int) -> str | None:
        """Describe the effect of a clock change on the members that fire at `second`."""
        moment = moment_of(second)
        firing = [member for member in self.members if member.latest_at_or_before(moment) == moment]
        return next((note for member in firing if (note := member.note(second))), None)

    def clock_change(self, after: int, until: int) -> str | None:
        """Describe the fire of a member that a clock change moves, doubles or drops."""
        changes = (member.clock_change(after, until) for member in self.members)
        return next((change for change in changes if change), None)


def _kind(members: Sequence[Compiled]) -> Kind:
    kinds = {member.kind for member in members}
    if "wildcard" in kinds:
        return "wildcard"
    return "fixed" if "fixed" in kinds else "elapsed"
