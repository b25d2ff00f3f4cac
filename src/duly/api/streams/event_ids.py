"""Ids of events: the hub, the cursor in its ring, the moment, and the position in history, which any hub can read."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime

from duly.store.reads.tail import Position

_OPEN_MAX = 16  # open transactions in an id; with more of them open, the position is a little further back
EVENT_ID = re.compile(
    r"([0-9a-f]{8})-(\d{1,18})-(\d{1,15})-([0-9a-f]{8})-([0-9a-f]{1,16}(?:\.[0-9a-f]{1,16}){0,16})", re.ASCII
)


def moment_at(milliseconds: int) -> datetime | None:
    """Return the moment that an id names; None when there is no such moment."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def text_of(seen: Position) -> str:
    """Write a position as part of an event's id: the server, the end, and how far before it each open transaction is."""
    short = seen.shortened(_OPEN_MAX)
    return f"{_digest(seen.cluster)}-{'.'.join([f'{short.end:x}', *(f'{short.end - one:x}' for one in short.open)])}"


def position_of(found: re.Match[str], here: Position) -> Position | None:
    """Read a position out of an event's id; None when it is another server's."""
    end, *distances = (int(part, 16) for part in found[5].split("."))
    if found[4] != _digest(here.cluster) or end > here.end or any(distance > end for distance in distances):
        return None
    return Position(here.cluster, end, tuple(end - distance for distance in distances))


def _digest(cluster: str) -> str:
    return hashlib.sha256(cluster.encode()).hexdigest()[:8]
