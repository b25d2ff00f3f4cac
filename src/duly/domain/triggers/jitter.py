"""Jitter: a delay that spreads jobs out, the same on every node. It never advances a run and never changes an order."""

from __future__ import annotations

from hashlib import sha256
from typing import Literal

import msgspec

from duly.domain.triggers.moments import utc_text

MAX_SECONDS = 86_400


class Jitter(msgspec.Struct, frozen=True):
    """Up to `max_seconds`, one delay for the job or one for each occurrence."""

    max_seconds: int
    per: Literal["job", "occurrence"] = "job"

    def delay(self, job_id: str, scheduled: int, window: int) -> int:
        """Return the delay in seconds, where there is room for `window`."""
        return spread(job_id if self.per == "job" else f"{job_id}|{utc_text(scheduled)}", window)


def spread(text: str, window: int) -> int:
    """Return a number from 0 up to, and without, `window`; 0 when the window is."""
    return stable_hash(text) * window >> 64


def stable_hash(text: str) -> int:
    """Return 64 bits that depend only on the text."""
    return int.from_bytes(sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")
