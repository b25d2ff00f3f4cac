"""How spans and moments are written in explanations."""

from __future__ import annotations

from datetime import datetime, timedelta


def spoken(span: timedelta) -> str:
    """Write a span in the unit that says most."""
    seconds = abs(span.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def moment_text(value: datetime) -> str:
    """Write a moment in UTC, to the second."""
    return f"{value:%Y-%m-%d %H:%M:%S}Z"
