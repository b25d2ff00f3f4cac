"""One-shots: a moment, to the microsecond."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from duly.domain.triggers.compiled import Compiled
from duly.domain.triggers.english.phrases import in_zone
from duly.domain.triggers.moments import EPOCH, clock_text, fraction_text, local_text, utc_text
from duly.domain.triggers.stamps import SECOND
from duly.domain.triggers.zones.zones import UTC_ZONE, Zone


class At(Compiled):
    """Fires once."""

    fires_per_hour_max = 1

    def __init__(self, microseconds: int, zone: Zone | None) -> None:
        self._microseconds = microseconds
        self.zone = zone or UTC_ZONE
        self.moment = EPOCH + timedelta(microseconds=microseconds)

    @property
    def canonical(self) -> dict[str, Any]:
        """The moment in UTC, and the zone it is shown in."""
        second, fraction = divmod(self._microseconds, SECOND)
        text = utc_text(second)
        shape = {"type": "at", "at": f"{text[:-1]}{fraction_text(fraction)}Z"}
        return shape if self.zone.name == "UTC" else shape | {"tz": self.zone.name}

    def describe(self) -> str:
        second, fraction = divmod(self._microseconds, SECOND)
        local = self.zone.local_at(second)
        time = f"{local_text(local)[11:]}{fraction_text(fraction)}" if fraction else clock_text(local)
        return in_zone(f"Once, on {local_text(local)[:10]} at {time}", self.zone.name)

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the moment, if it is still to come."""
        return self.moment if moment < self.moment else None

    def latest_at_or_before(self, moment: datetime) -> datetime | None:
        """Return the moment, if it has come."""
        return self.moment if self.moment <= moment else None
