"""What is known of clocks: those of hosts, and the database's own."""

from __future__ import annotations

from datetime import datetime

import msgspec


class HostClock(msgspec.Struct, frozen=True):
    """How far the clock of a process's host is ahead of the database's."""

    role: str
    name: str
    host: str
    offset_seconds: float


class ClockSetBack(msgspec.Struct, frozen=True):
    """By how much the database's clock is behind where it was; at `resumes_at` it is there again, and schedules go on."""

    seconds: float
    resumes_at: datetime
