"""Spans, rates and moments as explanations write them."""

from __future__ import annotations

from datetime import datetime, timedelta


def spoken(span: timedelta) -> str:
    """Write a span in the most telling unit."""
    seconds = abs(span.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def rate_text(per_second: float) -> str:
    """Write a rate in the first unit with at least one: 1 an hour, rather than 0.000277778 a second."""
    for unit, seconds in (("a second", 1), ("a minute", 60), ("an hour", 3_600), ("a day", 86_400)):
        count = per_second * seconds
        if count >= 1 - 1e-9:
            return f"{round(count) if abs(count - round(count)) < 1e-6 * count else f'{count:.3g}'} {unit}"
    return f"1 every {spoken(timedelta(seconds=1 / per_second))}"


def moment_text(value: datetime) -> str:
    """Write a moment in UTC, to the second."""
    return f"{value:%Y-%m-%d %H:%M:%S}Z"
