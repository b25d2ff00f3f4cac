"""Editions of the tz database that were made up: two zones, of which one changes its clocks from one edition to the next."""

import struct
from collections.abc import Sequence
from datetime import datetime

from duly.domain.triggers.moments import second_of
from duly.domain.triggers.zones.zones import Edition

CHANGING, QUIET = "Europe/Changing", "Europe/Quiet"
_HEADER = struct.Struct(">4s c 15x 6l")


def a_file(first_hours: int, changes: Sequence[tuple[datetime, int]] = ()) -> bytes:
    """Write the file of a zone: its hours ahead of UTC, and each change with the hours from then on."""
    hours = [first_hours, *(after for _, after in changes)]
    kinds = b"".join(struct.pack(">lbB", 3600 * hour, 0, 0) for hour in hours)
    moments = b"".join(struct.pack(">q", second_of(moment)) for moment, _ in changes)
    body = moments + bytes(range(1, len(hours))) + kinds + b"LMT\0"
    footer = f"\n<{hours[-1]:+03}>{-hours[-1]}\n".encode()
    empty = _HEADER.pack(b"TZif", b"2", 0, 0, 0, 0, 0, 0)
    return empty + _HEADER.pack(b"TZif", b"2", 0, 0, 0, len(changes), len(hours), 4) + body + footer


def an_edition(version: str, first_hours: int = 1, changes: Sequence[tuple[datetime, int]] = ()) -> Edition:
    """Give an edition in which one zone is so many hours ahead of UTC, and changes when it is said to; the other never does."""
    return Edition(version, {CHANGING: a_file(first_hours, changes), QUIET: a_file(1)})
