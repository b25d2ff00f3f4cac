"""Rules that name local times, and what a clock change does to them.

A *fixed* rule fires once for each local time it names: at the first moment the clock shows it, or, if that time was
jumped over, at the moment of the jump. A *wildcard* rule fires whenever the clock shows such a time: not at all for a
time that was jumped, and twice for one that came twice.
"""

from __future__ import annotations

from abc import abstractmethod

from duly.domain.triggers.compiled import WholeSeconds
from duly.domain.triggers.moments import DAY, FIRST_SECOND, LAST_SECOND, clock_text, local_text, offset_text
from duly.domain.triggers.zones.zones import Zone

_LOCAL_END = LAST_SECOND + 1 + DAY
_LOCAL_START = FIRST_SECOND - DAY
_TIMES_NAMED = 3


class LocalRule(WholeSeconds):
    """A rule on the line of local times. All searches are for one match, within bounds."""

    @abstractmethod
    def local_from(self, local: int, limit: int) -> int | None:
        """Return the first local time named that is at or after `local` and before `limit`."""

    @abstractmethod
    def local_until(self, local: int, floor: int) -> int | None:
        """Return the last local time named that is at or before `local` and not before `floor`."""

    def second_from(self, second: int) -> int | None:
        if self.kind == "wildcard":
            return self._shown_from(second)
        zone = self.zone
        local = self.local_from(zone.local_reaching(second), _LOCAL_END)
        return None if local is None else zone.first_instant(local)

    def second_until(self, second: int) -> int | None:
        if self.kind == "wildcard":
            return self._shown_until(second)
        zone = self.zone
        local = self.local_until(zone.local_reached(second), _LOCAL_START)
        return None if local is None else zone.first_instant(local)

    def _shown_from(self, second: int) -> int | None:
        zone, piece = self.zone, self.zone.piece_at(second)
        while second <= LAST_SECOND:
            offset, end = zone.offsets[piece], min(zone.piece_end(piece), LAST_SECOND + 1)
            local = self.local_from(second + offset, end + offset)
            if local is not None:
                return local - offset
            second, piece = end, piece + 1
        return None

    def _shown_until(self, second: int) -> int | None:
        zone, piece = self.zone, self.zone.piece_at(second)
        while second >= FIRST_SECOND:
            offset, start = zone.offsets[piece], max(zone.instants[piece], FIRST_SECOND)
            local = self.local_until(second + offset, start + offset)
            if local is not None:
                return local - offset
            second, piece = start - 1, piece - 1
        return None

    def note(self, second: int) -> str | None:
        if self.kind != "wildcard" and (jumped := self._jumped_to(second)):
            return jumped
        local = self.zone.local_at(second)
        both = self.zone.instants_of(local)
        if len(both) < 2:
            return None
        return f"{'first' if second == both[0] else 'second'} of two {clock_text(local)}"

    def _jumped_to(self, second: int) -> str | None:
        zone = self.zone
        piece = zone.piece_at(second)
        if zone.instants[piece] != second or zone.firsts[piece] >= zone.starts[piece]:
            return None
        lost = self._locals_between(zone.firsts[piece], zone.starts[piece], _TIMES_NAMED + 1)
        if not lost:
            return None
        names = ", ".join(clock_text(local) for local in lost[:_TIMES_NAMED]) + (
            " …" if len(lost) > _TIMES_NAMED else ""
        )
        does = "does" if len(lost) == 1 else "do"
        is_due_anyway = self.local_from(zone.starts[piece], zone.starts[piece] + 1) is not None
        verb = "also stands for" if is_due_anyway else "moved from"
        return f"{verb} {names}, which {does} not exist that day"

    def _locals_between(self, start: int, end: int, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count and (local := self.local_from(start, end)) is not None:
            found.append(local)
            start = local + 1
        return found

    def keeps_rhythm(self, shift: int) -> bool:
        """Return whether a clock that moves by `shift` seconds leaves the real distance between fires as it is."""
        return False

    def clock_change(self, after: int, until: int) -> str | None:
        zone = self.zone
        pieces = range(zone.piece_at(after) + 1, zone.piece_at(until) + 1)
        return next(filter(None, map(self._effect, pieces)), None)

    def _effect(self, piece: int) -> str | None:
        zone = self.zone
        before, after = zone.instants[piece] + zone.offsets[piece - 1], zone.starts[piece]
        if self.kind == "wildcard" and self.keeps_rhythm(after - before):
            return None
        if after > before:
            local = self.local_from(before, after)
            return local if local is None else self._jump_effect(local, after)
        local = self.local_from(after, before) if self.kind == "wildcard" else None
        return None if local is None else f"{_day_and_time(local)} comes twice, and it fires at both"

    def _jump_effect(self, local: int, after: int) -> str:
        what = "it does not fire for it" if self.kind == "wildcard" else f"it fires at {clock_text(after)} instead"
        return f"{_day_and_time(local)} does not exist, and {what}"


class StartedRule(LocalRule):
    """A fixed rule that begins at exactly the moment `start`, even where the clock shows `start_local` twice."""

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
        # The start is the second of two equal local times: the match is the first of them, or lies before.
        if found is None or found >= self.start:
            return found
        return self.start if self.local_from(self.start_local, self.start_local + 1) is not None else None

    def start_text(self) -> str:
        """Write the start with its offset."""
        return local_text(self.start_local) + offset_text(self.start_local - self.start)


def _day_and_time(local: int) -> str:
    return f"{clock_text(local)} on {local_text(local)[:10]}"
