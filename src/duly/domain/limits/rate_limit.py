"""Rate limits as token buckets: so many submits a second, and ten seconds' worth of them at once.

The bucket itself is one row that every process draws from. A process draws a little ahead, so that not every request asks the
database; what it has drawn and not spent within a second is lost, so the rate is never exceeded. What is here is the arithmetic
of the purse into which it draws, and of the answer.
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
    """So many a second of something, which the bucket names: a key, or a tenant."""

    bucket: str
    rate: float

    @property
    def whose(self) -> str:
        """What it limits: `key` or `tenant`."""
        return self.bucket.partition(":")[0]

    @property
    def burst(self) -> int:
        """How many at once, after a rest."""
        return max(1, ceil(self.rate * BURST_SECONDS))

    def worth_drawing(self, count: int) -> int:
        """Say how many to draw when `count` are wanted: some ahead, where the rate is high enough."""
        return max(count, int(self.rate * _AHEAD_SECONDS))


class Verdict(msgspec.Struct, frozen=True):
    """Whether a request may go on, and what its answer says about the limit that came nearest."""

    limit: RateLimit
    is_allowed: bool
    remaining: int
    retry_after: float  # seconds until as many as were asked for are there; 0 when it is allowed

    @property
    def headers(self) -> dict[str, str]:
        """The limit as HTTP says it."""
        name, full_in = self.limit.whose, (self.limit.burst - self.remaining) / self.limit.rate
        told = {
            "RateLimit-Policy": f'"{name}";q={self.limit.burst};w={BURST_SECONDS}',
            "RateLimit": f'"{name}";r={self.remaining};t={max(0, ceil(full_in))}',
        }
        return told if self.is_allowed else told | {"Retry-After": str(max(1, ceil(self.retry_after)))}


class Purse(msgspec.Struct):
    """What a process has drawn of one bucket and not spent, and what was in the bucket when it last looked."""

    tokens: int = 0
    left: float = 0.0
    looked_at: float | None = None

    def spend(self, count: int, monotonic: float) -> bool:
        """Take out what is wanted, if it is there and still good."""
        if self.looked_at is None or monotonic - self.looked_at > _KEPT_SECONDS:
            self.tokens = 0
        if self.tokens < count:
            return False
        self.tokens -= count
        return True

    def fill(self, drawn: int, left: float, monotonic: float) -> None:
        """Put in what was drawn."""
        self.tokens += drawn
        self.left, self.looked_at = left, monotonic

    def wait(self, limit: RateLimit, count: int, monotonic: float) -> float:
        """Say for how many seconds at least the bucket has less than is wanted: others draw from it, and nobody puts in."""
        if self.looked_at is None:
            return 0.0
        most = self.left + (monotonic - self.looked_at) * limit.rate
        return max(0.0, (min(count, limit.burst) - most) / limit.rate)

    def verdict(self, limit: RateLimit, retry_after: float) -> Verdict:
        """Say how things stand."""
        return Verdict(limit, retry_after <= 0, max(0, int(self.left) + self.tokens), retry_after)


def check_rate(rate: float | None) -> None:
    """Take a number of submits a second, or none. Raises InvalidOption."""
    if rate is not None and not RATE_MIN <= rate <= RATE_MAX:
        raise InvalidOption(
            f"rate {rate:g} is outside {RATE_MIN:g} to {RATE_MAX:,.0f} per second; leave it out for no limit"
        )
