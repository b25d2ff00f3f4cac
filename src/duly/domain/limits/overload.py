"""Overload: a tenant's backlog in a queue is too old, so less urgent work is refused meanwhile."""

from __future__ import annotations

import math
from datetime import timedelta

import msgspec

from duly.domain.errors import InvalidOption, Shed

AGE_LIMIT = timedelta(seconds=60)  # default for the oldest due run of a queue
AGE_LIMIT_MIN, AGE_LIMIT_MAX = timedelta(seconds=1), timedelta(days=1)
PRIORITY_SHED = 7  # and every higher number, which is less urgent
_RETRY_SECONDS_MAX = 60


class Overload(msgspec.Struct, frozen=True):
    """A tenant whose oldest due run in a queue is older than the limit."""

    tenant: int
    queue: str
    age: timedelta
    age_limit: timedelta

    @property
    def retry_seconds(self) -> int:
        """Return when to retry: the age must fall to half of the limit, by at most a second each second."""
        left = (self.age - self.age_limit / 2).total_seconds()
        return max(1, min(_RETRY_SECONDS_MAX, math.ceil(left)))

    @property
    def waited(self) -> str:
        """Describe the age of the oldest run, and its limit."""
        age, limit = self.age.total_seconds(), self.age_limit.total_seconds()
        return f"its oldest run has waited for {age:.0f} s, and its limit is {limit:g} s"

    def refusal(self, priority: int) -> Shed:
        """Explain to the submitter why the work is refused now."""
        shed = Shed(
            f"queue {self.queue} is overloaded for this tenant: {self.waited}. Jobs of priority"
            f" {priority} are refused until it recovers; those of priority {PRIORITY_SHED - 1} and more"
            f" urgent are accepted. Retry in {self.retry_seconds} s"
        )
        shed.retry_seconds = self.retry_seconds
        return shed


def described_overload(age_seconds: float, limit_seconds: float) -> str:
    """Describe the overload of a tenant in a queue, and its consequence."""
    return (
        f"overloaded: its oldest run has waited for {age_seconds:.0f} s of {limit_seconds:g} s,"
        f" and work of priority {PRIORITY_SHED} and above is not taken; start more workers"
    )


def is_shed(priority: int) -> bool:
    """Return whether work of a priority is refused while its tenant is overloaded in its queue."""
    return priority >= PRIORITY_SHED


def check_age_limit(age_limit: timedelta) -> timedelta:
    """Check an age limit. Raises InvalidOption."""
    if not AGE_LIMIT_MIN <= age_limit <= AGE_LIMIT_MAX:
        raise InvalidOption(f"an age limit of {age_limit.total_seconds():g} s is outside its range: PT1S to P1D")
    return age_limit
