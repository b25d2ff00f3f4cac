"""Durations that callers write, read within bounds."""

from __future__ import annotations

from datetime import timedelta

from duly.domain.duration import parse, to_iso
from duly.domain.errors import InvalidOption, InvalidSchedule
from duly.domain.fields import Duration


def read_span(value: Duration, what: str, least: timedelta, most: timedelta) -> timedelta:
    """Read a duration within bounds. Raises InvalidOption."""
    try:
        span = parse(value, what)
    except InvalidSchedule as error:
        raise InvalidOption(str(error)) from None
    if not least <= span <= most:
        raise InvalidOption(f"{what} {value!r} is outside {to_iso(least)} to {to_iso(most)}")
    return span
