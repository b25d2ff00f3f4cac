"""The name of a run: 48 bits of its scheduled moment in milliseconds, then 74 bits of a hash (a UUID of version 8).

The same for every attempt, so it is the idempotency key handed to handlers. `duly.run_id` in the schema computes the
same; a property test holds the two together.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import UUID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def run_id(scheduled_at: datetime, name: str) -> UUID:
    """Compute the id of the run called `name` that is scheduled at a moment."""
    digest = sha256(name.encode()).digest()
    text = digest.hex()
    variant = "89ab"[digest[31] % 4]
    return UUID(f"{_microseconds(scheduled_at) // 1000:012x}8{text[:3]}{variant}{text[3:18]}")


def occurrence_id(job_id: UUID, scheduled_at: datetime, origin: str) -> UUID:
    """Compute the id of one occurrence of a job; origin is `schedule`, a backfill's id or a manual request's id."""
    return run_id(scheduled_at, f"{job_id}/{_microseconds(scheduled_at)}/{origin}")


def scheduled_at_of(identifier: UUID) -> datetime:
    """Read the scheduled moment back from a run's id, to the millisecond."""
    return _EPOCH + timedelta(milliseconds=identifier.int >> 80)


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND
