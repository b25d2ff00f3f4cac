"""Fixed distances in real time: counted from an anchor, or from the end of each run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from duly.domain.counting import some
from duly.domain.duration import to_iso
from duly.domain.triggers.compiled import TriggerWarning, WholeSeconds
from duly.domain.triggers.interval import describe_every
from duly.domain.triggers.moments import LAST_SECOND, utc_text
from duly.domain.triggers.zones.zones import UTC_ZONE, Zone

_DENSE = 60


class FixedRate(WholeSeconds):
    """Occurrence k is anchor + k × every; with a count, k stays below it."""

    kind = "elapsed"
    steps_per_count = 0

    def __init__(self, every: int, anchor: int, count: int | None = None, zone: Zone | None = None) -> None:
        self.every = every
        self.anchor = anchor
        self.count = count
        self.zone = zone or UTC_ZONE
        self._last = LAST_SECOND if count is None else anchor + (count - 1) * every
        self.fires_per_hour_max = max(1, 3600 // every)

    @property
    def canonical(self) -> dict[str, Any]:
        """The period, the anchor and the zone of its fires, normalized."""
        shape = {"type": "interval", "every": to_iso(timedelta(seconds=self.every)), "anchor": utc_text(self.anchor)}
        return shape if self.zone.name == "UTC" else shape | {"tz": self.zone.name}

    def describe(self) -> str:
        return f"{_every_words(self.every)} from {_utc_words(self.anchor)}"

    @property
    def warnings(self) -> tuple[TriggerWarning, ...]:
        """Warn of more than one fire a minute."""
        if self.every * _DENSE >= 3600:
            return ()
        return (TriggerWarning("DENSE", f"it fires {3600 // self.every} times an hour", "every"),)

    def second_from(self, second: int) -> int | None:
        found = max(self.anchor, self.anchor - (self.anchor - second) // self.every * self.every)
        return found if found <= self._last else None

    def second_until(self, second: int) -> int | None:
        if second < self.anchor:
            return None
        second = min(second, self._last)
        return second - (second - self.anchor) % self.every

    def count_seconds(self, start: int, end: int, most: int) -> int:
        """Count the occurrences from `start` on and before `end`, all of them: it takes no longer."""
        first, last = self.second_from(start), self.second_until(end - 1)
        return 0 if first is None or last is None or last < first else (last - first) // self.every + 1


class FixedDelay(FixedRate):
    """The next fire is one period after the end of the last run, so all but the first are estimates here."""

    is_estimate = True

    @property
    def canonical(self) -> dict[str, Any]:
        """The same as of a fixed rate, with its mode."""
        return {**super().canonical, "mode": "fixed_delay"}

    def describe(self) -> str:
        period = _every_words(self.every).removeprefix("Every ")
        period = period if period[0].isdigit() else f"1 {period}"
        return f"{period} after the end of each run, the first at {_utc_words(self.anchor)}"


class ClockRepeat(FixedRate):
    """An ISO 8601 repetition in clock units."""

    @property
    def canonical(self) -> dict[str, Any]:
        """The repetition with its start in UTC."""
        count = "" if self.count is None else str(self.count)
        return {"type": "iso8601", "text": f"R{count}/{utc_text(self.anchor)}/{to_iso(timedelta(seconds=self.every))}"}

    def describe(self) -> str:
        return super().describe() + ("" if self.count is None else f", {some(self.count, 'time')}")


def _every_words(seconds: int) -> str:
    # A day by the clock is not a day on the calendar, so hours are the largest unit.
    hours, rest = divmod(seconds, 3600)
    if rest == 0 and hours > 23:
        return f"Every {hours} hours"
    return describe_every(timedelta(seconds=seconds))


def _utc_words(second: int) -> str:
    return utc_text(second).replace("T", " ").replace("Z", " UTC")
