"""The compiled form of every trigger: a pure rule that gives the occurrence after a moment, and the one before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import Any, Literal

import msgspec

from duly.domain.triggers.moments import DAY, EPOCH, FIRST_SECOND, LAST_SECOND
from duly.domain.triggers.zones.zones import UTC_ZONE, Zone

Kind = Literal["fixed", "wildcard", "elapsed"]
_EARLIEST = EPOCH + timedelta(0, FIRST_SECOND)
_FINEST, _SECOND = timedelta(microseconds=1), timedelta(seconds=1)


class TriggerWarning(msgspec.Struct, frozen=True):
    """A trigger that is allowed but may not be meant."""

    code: str
    message: str
    field: str = "expr"


class Compiled(ABC):
    """A compiled trigger. Equal `key`s fire at equal moments."""

    kind: Kind = "fixed"
    zone: Zone = UTC_ZONE
    words: str | None = None  # the user's text, if it was English
    is_estimate = False  # whether only the first occurrence is known ahead
    fires_per_hour_max: int = 1
    steps_per_count: int = 1  # occurrences walked to count one; 0 when all are counted at once

    @property
    @abstractmethod
    def canonical(self) -> dict[str, Any]:
        """The trigger in the form that all its spellings share; it compiles to the same rule."""

    @abstractmethod
    def describe(self) -> str:
        """Describe it in English; equal canonical forms give equal words."""

    @abstractmethod
    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first occurrence after a moment; None when there is none before the end of 2199."""

    @abstractmethod
    def latest_at_or_before(self, moment: datetime) -> datetime | None:
        """Return the last occurrence at or before a moment; None when there is none."""

    @property
    def warnings(self) -> tuple[TriggerWarning, ...]:
        """The warnings that need no clock."""
        return ()

    def note(self, second: int) -> str | None:
        """Describe the effect of a clock change on the occurrence at `second`."""
        return None

    def clock_change(self, after: int, until: int) -> str | None:
        """Describe the fire between two moments that a clock change moves, doubles or drops, if there is one."""
        return None

    @cached_property
    def key(self) -> str:
        """The canonical form as text, which triggers of one cohort share."""
        return msgspec.json.encode(self.canonical, order="deterministic").decode()

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Return the occurrences from `start` on and before `end`, in order."""
        found = self.next_after(max(start, _EARLIEST) - _FINEST)
        while found is not None and found < end:
            yield found
            found = self.next_after(found)

    def count_between(self, start: datetime, end: datetime, most: int) -> int:
        """Count the occurrences from `start` on and before `end`; a count that has to walk them stops at `most`."""
        return sum(1 for _ in islice(self.between(start, end), most))


class WholeSeconds(Compiled):
    """A trigger whose occurrences are whole UTC seconds, as are all that a clock change can affect."""

    @abstractmethod
    def second_from(self, second: int) -> int | None:
        """Return the first occurrence at or after `second`."""

    @abstractmethod
    def second_until(self, second: int) -> int | None:
        """Return the last occurrence at or before `second`."""

    def next_after(self, moment: datetime) -> datetime | None:
        since = moment - EPOCH
        second = since.days * DAY + since.seconds + 1
        if second > LAST_SECOND:
            return None
        found = self.second_from(second if second > FIRST_SECOND else FIRST_SECOND)
        return None if found is None or found > LAST_SECOND else EPOCH + timedelta(0, found)

    def latest_at_or_before(self, moment: datetime) -> datetime | None:
        since = moment - EPOCH
        second = since.days * DAY + since.seconds
        if second < FIRST_SECOND:
            return None
        found = self.second_until(second if second < LAST_SECOND else LAST_SECOND)
        return None if found is None or found < FIRST_SECOND else EPOCH + timedelta(0, found)

    def count_between(self, start: datetime, end: datetime, most: int) -> int:
        first, last = max(_second_from(start), FIRST_SECOND), min(_second_from(end), LAST_SECOND + 1)
        return self.count_seconds(first, last, most) if first < last else 0

    def count_seconds(self, start: int, end: int, most: int) -> int:
        """Count the occurrences from one second on and before another; a count that has to walk them stops at `most`."""
        count = 0
        while count < most and (found := self.second_from(start)) is not None and found < end:
            count, start = count + 1, found + 1
        return count


def _second_from(moment: datetime) -> int:
    """Return the first whole second at or after a moment."""
    return -((EPOCH - moment) // _SECOND)
