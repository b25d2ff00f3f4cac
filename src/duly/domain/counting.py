"""Counts with their nouns, for people."""

from __future__ import annotations


def some(count: int, singular: str, plural: str | None = None) -> str:
    """Write a count with its noun: 1 run, 2 runs."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"
