"""Rate limits of submits as token buckets: so many a second, and a burst of ten seconds' worth.

The bucket is one row that every process draws from. A process draws a little ahead, so that not every request needs the
database; tokens drawn and not spent within a second are lost, so the rate is never exceeded. This module has the
arithmetic of the reservation and of the response.
"""

from __future__ import annotations

from math import ceil

import msgspec

from duly.domain.errors import InvalidOption

RATE_MIN, RATE_MAX = 0.001, 1_000_000.0
BURST_SECONDS = 10
_AHEAD_SECONDS = 0.1  # how much is drawn ahead
_KEPT_SECONDS = 1.0  # how long that is good for


class RateLimit(msgspec.Struct, frozen=True):
    """A rate of submits a second; the bucket names the key or tenant."""

    bucket: str
    rate: float

    @property
    def owner(self) -> str:
        """The kind of owner: `key` or `tenant`."""
        return self.bucket.partition(":")[0]

    @property
    def burst(self) -> int:
        """The maximum number at once, after a rest."""
        return max(1, ceil(self.rate * BURST_SECONDS))

    def worth_drawing(self, count: int) -> int:
        """Return how many tokens to draw when `count` are wanted: some ahead, where the rate is high enough."""
        return max(count, int(self.rate * _AHEAD_SECONDS))


class Verdict(msgspec.Struct, frozen=True):
    """The verdict on a request, and the nearest limit, for the response's headers."""

    limit: RateLimit
    is_allowed: bool
    remaining: int
    retry_after: float  # seconds until enough tokens are there; 0 when it is allowed

    @property
    def headers(self) -> dict[str, str]:
        """The limit as HTTP headers."""
        name, full_in = self.limit.owner, (self.limit.burst - self.remaining) / self.limit.rate
        headers = {
            "RateLimit-Policy": f'"{name}";q={self.limit.burst};w={BURST_SECONDS}',
            "RateLimit": f'"{name}";r={self.remaining};t={max(0, ceil(full_in))}',
        }
        return headers if self.is_allowed else headers | {"Retry-After": str(max(1, ceil(self.retry_after)))}


class RequestBudget(msgspec.Struct):
    """The tokens that a process has drawn and not spent, and the bucket's last known level."""

    tokens: int = 0
    left: float = 0.0
    looked_at: float | None = None

    def spend(self, count: int, monotonic: float) -> bool:
        """Spend the wanted tokens, if they are there and still valid."""
        if self.looked_at is None or monotonic - self.looked_at > _KEPT_SECONDS:
            self.tokens = 0
        if self.tokens < count:
            return False
        self.tokens -= count
        return True

    def fill(self, drawn: int, left: float, monotonic: float) -> None:
        """Add the tokens that were drawn."""
        self.tokens += drawn
        self.left, self.looked_at = left, monotonic

    def wait(self, limit: RateLimit, count: int, monotonic: float) -> float:
        """Return for how many seconds at least the bucket lacks the wanted tokens."""
        if self.looked_at is None:
            return 0.0
        most = self.left + (monotonic - self.looked_at) * limit.rate
        return max(0.0, (min(count, limit.burst) - most) / limit.rate)

    def verdict(self, limit: RateLimit, retry_after: float) -> Verdict:
        """Return the verdict."""
        return Verdict(limit, retry_after <= 0, max(0, int(self.left) + self.tokens), retry_after)


def check_rate(rate: float | None) -> None:
    """Check a rate of submits a second, or None. Raises InvalidOption."""
    if rate is not None and not RATE_MIN <= rate <= RATE_MAX:
        raise InvalidOption(
            f"rate {rate:g} is outside {RATE_MIN:g} to {RATE_MAX:,.0f} per second; leave it out for no limit"
        )
