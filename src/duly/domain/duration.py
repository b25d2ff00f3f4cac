"""Durations as people write them: ISO 8601 clock units (`PT90S`, `PT1H30M`, `P1D`) or a number of seconds."""

from __future__ import annotations

import re
from datetime import timedelta

from duly.domain.errors import InvalidSchedule

_ISO = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,6})?)S)?)?", re.ASCII)

Duration = str | int | float | timedelta


def parse(value: Duration, what: str) -> timedelta:
    """Read `value`, which the caller knows as `what`. Raises InvalidSchedule when it is no duration."""
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool):
        raise InvalidSchedule(f"{what} {value!r} is not a duration; write PT30S, PT5M, P1D or a number of seconds")
    if isinstance(value, int | float):
        return _from_seconds(float(value), what)
    return _from_iso(value, what)


def _from_seconds(seconds: float, what: str) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        raise InvalidSchedule(f"{what} {seconds} is not a number of seconds within reach") from None


def _from_iso(text: str, what: str) -> timedelta:
    match = _ISO.fullmatch(text)
    if match is None or text in ("P", "PT") or text.endswith("T"):
        raise InvalidSchedule(f"{what} {text!r} is not a duration; write PT30S, PT5M, P1D or a number of seconds")
    weeks, days, hours, minutes, seconds = (float(part) if part else 0.0 for part in match.groups())
    try:
        return timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        raise InvalidSchedule(f"{what} {text!r} is longer than we can count") from None


def to_iso(duration: timedelta) -> str:
    """Write `duration` in ISO 8601, in the largest clock units that fit."""
    seconds = duration.total_seconds()
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    parts = [f"{hours:.0f}H" if hours else "", f"{minutes:.0f}M" if minutes else "", f"{rest:g}S" if rest else ""]
    return "PT" + ("".join(parts) or "0S")
