"""Overload: when a tenant has more in a queue than it can do, and what is turned away meanwhile."""

from __future__ import annotations

import math
from datetime import timedelta

import msgspec

from duly.domain.errors import InvalidOption, Shed

AGE_LIMIT = timedelta(seconds=60)  # of the oldest due run of a queue, where nobody says otherwise
AGE_LIMIT_MIN, AGE_LIMIT_MAX = timedelta(seconds=1), timedelta(days=1)
PRIORITY_SHED = 7  # and every number above, which is less urgent
_RETRY_SECONDS_MAX = 60


class Overload(msgspec.Struct, frozen=True):
    """A tenant whose oldest due run in a queue is older than it should be."""

    tenant: int
    queue: str
    age: timedelta
    age_limit: timedelta

    @property
    def retry_seconds(self) -> int:
        """When to come back: it has to be down to half of the limit, and a second of it takes at least a second."""
        left = (self.age - self.age_limit / 2).total_seconds()
        return max(1, min(_RETRY_SECONDS_MAX, math.ceil(left)))

    @property
    def waited(self) -> str:
        """Say for how long the oldest run has waited, and how long it may."""
        age, limit = self.age.total_seconds(), self.age_limit.total_seconds()
        return f"its oldest run has waited for {age:.0f} s, and its limit is {limit:g} s"

    def refusal(self, priority: int) -> Shed:
        """Say to whoever submits why that is not taken now."""
        shed = Shed(
            f"queue {self.queue} is overloaded for this tenant: {self.waited}. Jobs of priority"
            f" {priority} are refused until it recovers; those of priority {PRIORITY_SHED - 1} and more"
            f" urgent are accepted. Retry in {self.retry_seconds} s"
        )
        shed.retry_seconds = self.retry_seconds
        return shed


def overload_told(age_seconds: float, limit_seconds: float) -> str:
    """Say that a tenant has more in a queue than it can do, and what follows from it."""
    return (
        f"overloaded: its oldest run has waited for {age_seconds:.0f} s of {limit_seconds:g} s,"
        f" and work of priority {PRIORITY_SHED} and above is not taken; start more workers"
    )


def is_shed(priority: int) -> bool:
    """Say whether work of a priority is turned away while its tenant is overloaded in its queue."""
    return priority >= PRIORITY_SHED


def check_age_limit(age_limit: timedelta) -> timedelta:
    """Give an age limit as it is. Raises InvalidOption."""
    if not AGE_LIMIT_MIN <= age_limit <= AGE_LIMIT_MAX:
        raise InvalidOption(f"an age limit of {age_limit.total_seconds():g} s is outside its range: PT1S to P1D")
    return age_limit
