"""Stable spreading: the same job always gets the same value, on every node and in every version."""

from __future__ import annotations

from hashlib import sha256


def stable_hash(text: str) -> int:
    """Give 64 bits that depend on nothing but the text."""
    return int.from_bytes(sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")
