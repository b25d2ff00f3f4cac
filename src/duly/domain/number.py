"""Checks of numbers that callers give. A boolean does not count as a number."""

from __future__ import annotations


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Return whether a value is a number."""
    return isinstance(value, float) or is_whole(value)
