"""What every trigger becomes: a pure rule that can be asked for the occurrence after a moment, and the one before."""

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
    """Something that is allowed and may not be meant."""

    code: str
    message: str
    field: str = "expr"


class Compiled(ABC):
    """A trigger ready to be asked. Equal `key`s fire at equal moments."""

    kind: Kind = "fixed"
    zone: Zone = UTC_ZONE
    words: str | None = None  # What the user wrote, when that was English.
    is_estimate = False  # Whether only the first occurrence can be known ahead.
    fires_per_hour_max: int = 1
    steps_per_count: int = 1  # How many occurrences are walked to count one; 0 when all are counted at once.

    @property
    @abstractmethod
    def canonical(self) -> dict[str, Any]:
        """The trigger in the one form that all spellings of it share; it compiles to the same rule."""

    @abstractmethod
    def describe(self) -> str:
        """Say it in English; equal canonical forms give equal words."""

    @abstractmethod
    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first occurrence after a moment; None when there is none before the end of 2199."""

    @abstractmethod
    def latest_at_or_before(self, moment: datetime) -> datetime | None:
        """Return the last occurrence at or before a moment; None when there is none."""

    @property
    def warnings(self) -> tuple[TriggerWarning, ...]:
        """What can be said against it without looking at a clock."""
        return ()

    def note(self, second: int) -> str | None:
        """Say what a clock change has to do with the occurrence at `second`."""
        return None

    def clock_change(self, after: int, until: int) -> str | None:
        """Say which fire between two moments is moved, doubled or lost by a clock change, if any is."""
        return None

    @cached_property
    def key(self) -> str:
        """The canonical form as text: what triggers of one cohort have in common."""
        return msgspec.json.encode(self.canonical, order="deterministic").decode()

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Return the occurrences from `start` on and before `end`, in order."""
        found = self.next_after(max(start, _EARLIEST) - _FINEST)
        while found is not None and found < end:
            yield found
            found = self.next_after(found)

    def count_between(self, start: datetime, end: datetime, most: int) -> int:
        """Count the occurrences from `start` on and before `end`; one that has to walk them stops at `most`."""
        return sum(1 for _ in islice(self.between(start, end), most))


class WholeSeconds(Compiled):
    """A trigger whose occurrences are whole UTC seconds; all that a clock change can touch is."""

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
        """Count the occurrences from one second on and before another; one that has to walk them stops at `most`."""
        count = 0
        while count < most and (found := self.second_from(start)) is not None and found < end:
            count, start = count + 1, found + 1
        return count


def _second_from(moment: datetime) -> int:
    """Return the first whole second at or after a moment."""
    return -((EPOCH - moment) // _SECOND)
