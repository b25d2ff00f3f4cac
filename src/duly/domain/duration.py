"""Durations as people write them: ISO 8601 clock units (`PT90S`, `PT1H30M`, `P1D`) or a number of seconds."""

from __future__ import annotations

import re
from datetime import timedelta

from duly.domain.errors import InvalidOption, InvalidSchedule
from duly.domain.triggers.errors import shown

_ISO = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,6})?)S)?)?", re.ASCII)
_CALENDAR = re.compile(r"P(\d+Y|\d+M)", re.ASCII)

Duration = str | int | float | timedelta
LONGEST = timedelta(days=300 * 366)


def parse(value: Duration, what: str, longest: timedelta = LONGEST) -> timedelta:
    """Parse `value`, which messages call `what`. Raises InvalidSchedule when it is no duration, or too long."""
    try:
        duration = _read(value)
    except OverflowError:
        duration = timedelta.max
    if duration is None:
        in_days = ""
        if isinstance(value, str) and _CALENDAR.match(value):
            in_days = f"; years and months have no one length: write days, up to P{longest.days}D"
        raise InvalidSchedule(
            f"{what} {shown(value)} is not a duration; write PT30S, PT5M, P1D or a number of seconds{in_days}"
        )
    if abs(duration) > longest:
        said = f"{value.days} days" if isinstance(value, timedelta) else shown(value)
        raise InvalidSchedule(
            f"{what} {said} is too long;"
            f" the longest is {longest.days // 365} years, {longest.total_seconds():.0f} seconds"
        )
    return duration


def parse_option(value: Duration, what: str) -> timedelta:
    """Parse a duration that is an option of a job. Raises InvalidOption."""
    try:
        return parse(value, what)
    except InvalidSchedule as error:
        raise InvalidOption(str(error)) from None


def _read(value: object) -> timedelta | None:
    """Parse a duration; None if it is none. Raises OverflowError when it is too large."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or value != value:  # NaN is the only number that is not itself.
        return None
    if isinstance(value, int | float):
        return timedelta(seconds=value)
    return _from_iso(value) if isinstance(value, str) else None


def _from_iso(text: str) -> timedelta | None:
    match = _ISO.fullmatch(text)
    if match is None or text in ("P", "PT") or text.endswith("T"):
        return None
    weeks, days, hours, minutes, seconds = (float(part) if part else 0.0 for part in match.groups())
    return timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)


def to_iso(duration: timedelta) -> str:
    """Write `duration` in ISO 8601, in the largest clock units that fit."""
    seconds = duration.total_seconds()
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [
        f"{hours:.0f}H" if hours else "",
        f"{minutes:.0f}M" if minutes else "",
        f"{rest:.6f}".rstrip("0").rstrip(".") + "S" if rest else "",
    ]
    return "PT" + ("".join(parts) or "0S")
