"""Phrases that descriptions are made of."""

from __future__ import annotations

from collections.abc import Sequence

WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = (
    "", "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_SUFFIXES = {1: "st", 2: "nd", 3: "rd"}


def listed(items: Sequence[str], joint: str = "and") -> str:
    """Join as `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {joint} {items[-1]}"


def ordinal(number: int) -> str:
    """Write 1st, 2nd, 3rd, 11th."""
    suffix = "th" if 10 <= number % 100 <= 20 else _SUFFIXES.get(number % 10, "th")
    return f"{number}{suffix}"


def every(number: int, unit: str) -> str:
    """Write `Every minute`, `Every 2 minutes`."""
    return f"Every {unit}" if number == 1 else f"Every {number} {unit}s"


def bits(mask: int) -> list[int]:
    """List the bits that are set."""
    return [value for value in range(mask.bit_length()) if mask >> value & 1]


def runs(values: Sequence[int]) -> list[tuple[int, int]]:
    """Group sorted numbers into runs without a gap."""
    found: list[tuple[int, int]] = []
    for value in values:
        if found and found[-1][1] == value - 1:
            found[-1] = (found[-1][0], value)
        else:
            found.append((value, value))
    return found


def in_zone(sentence: str, zone: str) -> str:
    """Add the zone, unless it is UTC."""
    return sentence if zone == "UTC" else f"{sentence}, {zone} time"
