"""The id of a run: 48 bits of its scheduled moment in milliseconds, then 74 bits of a hash (a UUID of version 8).

In a batch, the last 24 bits are the position instead. An id is the same for every attempt, so handlers use it as an
idempotency key. `duly.run_id` in the schema computes the same; a property test compares the two, for moments before 2106.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import UUID

BATCH_MAX = (1 << 24) - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_VERSION_MASK, _VERSION = 0xF << 76, 0x8 << 76
_VARIANT_MASK, _VARIANT = 0x3 << 62, 0x2 << 62


def run_id(scheduled_at: datetime, name: str) -> UUID:
    """Compute the id of the run called `name` that is scheduled at a moment."""
    digest = int.from_bytes(sha256(name.encode()).digest()[:10])
    number = (_microseconds(scheduled_at) // 1000) << 80 | digest
    return UUID(int=number & ~(_VERSION_MASK | _VARIANT_MASK) | _VERSION | _VARIANT)


def occurrence_id(job_id: UUID, scheduled_at: datetime, origin: str) -> UUID:
    """Compute the id of one occurrence of a job; origin is `schedule`, a backfill's id or a manual request's id."""
    return run_id(scheduled_at, f"{job_id}/{_microseconds(scheduled_at)}/{origin}")


def least_id_at(moment: datetime) -> UUID:
    """Return the least id of runs scheduled at or after a moment."""
    return UUID(int=min(max(_microseconds(moment) // 1000, 0) << 80, (1 << 128) - 1))


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND
