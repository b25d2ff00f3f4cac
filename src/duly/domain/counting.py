"""Counts and names in a sentence, for people."""

from __future__ import annotations

from collections.abc import Sequence


def some(count: int, singular: str, plural: str | None = None) -> str:
    """Write a count with its noun: 1 run, 2 runs."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"


def few(names: Sequence[object], most: int = 5) -> str:
    """List as many names as fit a sentence: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more
