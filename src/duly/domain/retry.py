"""How often and how soon a failed run is tried again."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from duly.domain.duration import Duration, parse_option
from duly.domain.errors import InvalidOption

MAX_ATTEMPTS_DEFAULT = 5
BASE_SECONDS_DEFAULT = 1.0
CAP_SECONDS_DEFAULT = 600.0
_DOUBLINGS_MAX = 62
_SECONDS_MAX = 100 * 365.25 * 86_400


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """Exponential backoff with a cap and full jitter, for at most `max_attempts` attempts."""

    max_attempts: int = MAX_ATTEMPTS_DEFAULT
    base_seconds: float = BASE_SECONDS_DEFAULT
    cap_seconds: float = CAP_SECONDS_DEFAULT

    def delay_after(self, attempt: int, jitter: float) -> timedelta:
        """Say how long to wait after attempt number `attempt` failed; `jitter` is uniform in [0, 1)."""
        ceiling = min(self.cap_seconds, self.base_seconds * 2 ** min(attempt - 1, _DOUBLINGS_MAX), _SECONDS_MAX)
        return timedelta(seconds=ceiling * jitter)


def retry_policy(max_attempts: int = MAX_ATTEMPTS_DEFAULT, base: Duration = 1, cap: Duration = 600) -> Retry:
    """Build a policy from what users write. Raises InvalidOption when it makes no sense."""
    base_seconds, cap_seconds = (
        parse_option(base, "retry base").total_seconds(),
        parse_option(cap, "retry cap").total_seconds(),
    )
    if not 1 <= max_attempts <= 1000:
        raise InvalidOption(f"max_attempts {max_attempts!r} is outside 1 to 1000")
    if base_seconds < 0 or cap_seconds < base_seconds:
        raise InvalidOption(f"retry base {base!r} and cap {cap!r}: base must be 0 or more, and cap at least base")
    return Retry(max_attempts, base_seconds, cap_seconds)
