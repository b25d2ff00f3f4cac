"""How users write a retry policy."""

from __future__ import annotations

from dataclasses import dataclass

from duly.domain import retry as domain
from duly.domain.duration import Duration


@dataclass(frozen=True, slots=True)
class Retry:
    """Exponential backoff with full jitter: after attempt n, up to `base` × 2ⁿ⁻¹, never more than `cap`.

    Raises InvalidOption or InvalidSchedule when it makes no sense.
    """

    max_attempts: int = domain.MAX_ATTEMPTS_DEFAULT
    base: Duration = domain.BASE_SECONDS_DEFAULT
    cap: Duration = domain.CAP_SECONDS_DEFAULT

    def __post_init__(self) -> None:
        self.policy()

    def policy(self) -> domain.Retry:
        """Give the policy as the engine keeps it."""
        return domain.retry_policy(self.max_attempts, self.base, self.cap)
