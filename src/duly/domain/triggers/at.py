"""One-shots: a moment, to the millisecond."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from duly.domain.triggers.compiled import Compiled
from duly.domain.triggers.english import in_zone
from duly.domain.triggers.moments import EPOCH, clock_text, local_text, utc_text
from duly.domain.triggers.zones import UTC_ZONE, Zone


class At(Compiled):
    """Fires once."""

    fires_per_hour_max = 1

    def __init__(self, milliseconds: int, zone: Zone | None) -> None:
        self._milliseconds = milliseconds
        self.zone = zone or UTC_ZONE
        self.moment = EPOCH + timedelta(milliseconds=milliseconds)

    @property
    def canonical(self) -> dict[str, Any]:
        """The moment in UTC, and the zone it is shown in."""
        second, fraction = divmod(self._milliseconds, 1000)
        text = utc_text(second)
        shape = {"type": "at", "at": f"{text[:-1]}.{fraction:03}Z" if fraction else text}
        return shape if self.zone.name == "UTC" else shape | {"tz": self.zone.name}

    def describe(self) -> str:
        """Say it in English."""
        second, fraction = divmod(self._milliseconds, 1000)
        local = self.zone.local_at(second)
        time = f"{local_text(local)[11:]}.{fraction:03}" if fraction else clock_text(local)
        return in_zone(f"Once, on {local_text(local)[:10]} at {time}", self.zone.name)

    def next_after(self, moment: datetime) -> datetime | None:
        """Give the moment, if it is still to come."""
        return self.moment if moment < self.moment else None

    def latest_at_or_before(self, moment: datetime) -> datetime | None:
        """Give the moment, if it has come."""
        return self.moment if self.moment <= moment else None
