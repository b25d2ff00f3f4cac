"""Retry policies: how often and how soon a failed run is tried again.

A policy gives a ceiling for the delay after each attempt, and `jitter` the random part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

import msgspec

from duly.domain.duration import Duration, parse_option, to_iso
from duly.domain.errors import InvalidOption
from duly.domain.number import is_whole
from duly.domain.runs.retry_rules import Rule, described_rule, read_rules
from duly.domain.triggers.errors import shown

Policy = Literal["exponential", "linear", "fixed", "list"]
Jitter = Literal["full", "equal", "none"] | float

POLICIES: tuple[Policy, ...] = ("exponential", "linear", "fixed", "list")
MAX_ATTEMPTS_DEFAULT = 5
BASE_SECONDS_DEFAULT = 1.0
CAP_SECONDS_DEFAULT = 600.0
DELAYS_MAX = 100
RETRY_AFTER_MAX = timedelta(hours=24)  # longer values are cut
JITTER_BY_NAME = {"full": 1.0, "equal": 0.5, "none": 0.0}
_JITTER_DEFAULT = {"exponential": 1.0, "linear": 1.0, "fixed": 0.1, "list": 0.1}
_DOUBLINGS_MAX = 62
_SECONDS_MAX = 100 * 365.25 * 86_400


class Retry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A policy: at most `max_attempts` attempts, none of which starts later than `max_age_seconds` after the first was due."""

    max_attempts: int = MAX_ATTEMPTS_DEFAULT
    base_seconds: float = BASE_SECONDS_DEFAULT
    cap_seconds: float = CAP_SECONDS_DEFAULT
    policy: Policy = "exponential"
    delays: tuple[float, ...] = ()  # of a list, in seconds; the last one repeats
    jitter: float | None = None  # the random part of a delay; None: the policy's default
    max_age_seconds: float | None = None
    rules: tuple[Rule, ...] = ()

    @property
    def jitter_part(self) -> float:
        """The random part of a delay, from 0 to 1."""
        return _JITTER_DEFAULT[self.policy] if self.jitter is None else self.jitter

    def longest_after(self, attempt: int) -> timedelta:
        """Return the maximum delay after attempt number `attempt`."""
        return timedelta(seconds=self._ceiling(attempt))

    def delay_after(self, attempt: int, chance: float) -> timedelta:
        """Return the delay after attempt number `attempt` failed; `chance` is uniform in [0, 1)."""
        return self.drawn(self.longest_after(attempt), chance)

    def drawn(self, ceiling: timedelta, chance: float) -> timedelta:
        """Draw a delay below a ceiling."""
        return ceiling * (1 - self.jitter_part * (1 - chance))

    def _ceiling(self, attempt: int) -> float:
        match self.policy:
            case "exponential":
                return min(self.cap_seconds, self.base_seconds * 2.0 ** min(attempt - 1, _DOUBLINGS_MAX), _SECONDS_MAX)
            case "linear":
                return min(self.cap_seconds, self.base_seconds * attempt, _SECONDS_MAX)
            case "fixed":
                return min(self.base_seconds, _SECONDS_MAX)
            case "list":
                return min(self.delays[min(attempt, len(self.delays)) - 1], _SECONDS_MAX) if self.delays else 0.0


def retry_policy(
    max_attempts: int = MAX_ATTEMPTS_DEFAULT,
    base: Duration = BASE_SECONDS_DEFAULT,
    cap: Duration = CAP_SECONDS_DEFAULT,
    *,
    policy: str = "exponential",
    jitter: str | float | None = None,
    delays: Sequence[Duration] | None = None,
    max_age: Duration | None = None,
    rules: Iterable[Mapping[str, Any]] | None = None,
) -> Retry:
    """Build a policy from its fields. Raises InvalidOption when they do not fit together."""
    if not is_whole(max_attempts) or not 1 <= max_attempts <= 1000:
        raise InvalidOption(f"max_attempts {shown(max_attempts)} is outside 1 to 1000, in whole numbers")
    base_seconds, cap_seconds = _seconds(base, "retry base"), _seconds(cap, "retry cap")
    if base_seconds < 0 or (cap_seconds < base_seconds and policy != "fixed"):
        raise InvalidOption(f"retry base {base!r} and cap {cap!r}: base must be 0 or more, and cap at least base")
    return Retry(
        max_attempts,
        base_seconds,
        cap_seconds,
        check_policy(policy),
        _delays(delays, policy),
        None if jitter is None else _jitter(jitter),
        None if max_age is None else _max_age(max_age),
        read_rules(rules or ()),
    )


def described_policy(retry: Retry) -> dict[str, Any]:
    """Write a policy as users do, with all fields."""
    return {
        "policy": retry.policy,
        "max_attempts": retry.max_attempts,
        "base": _iso(retry.base_seconds),
        "cap": _iso(retry.cap_seconds),
        "jitter": None if retry.jitter is None else described_jitter(retry.jitter),
        "delays": [_iso(delay) for delay in retry.delays],
        "max_age": None if retry.max_age_seconds is None else _iso(retry.max_age_seconds),
        "rules": [described_rule(rule) for rule in retry.rules],
    }


def check_policy(value: str) -> Policy:
    """Check the name of a policy. Raises InvalidOption."""
    for policy in POLICIES:
        if policy == value:
            return policy
    raise InvalidOption(f"retry policy {shown(value)} is unknown; use one of {', '.join(POLICIES)}")


def described_jitter(part: float) -> str | float:
    """Write a jitter by its name, if it has one."""
    return next((name for name, known in JITTER_BY_NAME.items() if known == part), part)


def _jitter(value: object) -> float:
    if isinstance(value, str) and value in JITTER_BY_NAME:
        return JITTER_BY_NAME[value]
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    names = ", ".join(JITTER_BY_NAME)
    raise InvalidOption(f"retry jitter {shown(value)} is none; write {names}, or the random part, from 0 to 1")


def _delays(values: Sequence[Duration] | None, policy: str) -> tuple[float, ...]:
    if policy != "list":
        if values:
            raise InvalidOption(f"retry delays are for the policy list, not {policy}; leave out delays or policy")
        return ()
    if not values or isinstance(values, str) or len(values) > DELAYS_MAX:
        raise InvalidOption(
            f"retry policy list needs its delays: 1 to {DELAYS_MAX} of them, such as [PT1S, PT1M, PT1H]"
        )
    if negative := [value for value in values if _seconds(value, "retry delay") < 0]:
        raise InvalidOption(f"retry delay {negative[0]!r} is negative; it counts from the end of the attempt before")
    return tuple(_seconds(value, "retry delay") for value in values)


def _max_age(value: Duration) -> float:
    seconds = _seconds(value, "retry max_age")
    if seconds <= 0:
        raise InvalidOption(f"retry max_age {value!r} must be more than 0; leave it out for none")
    return seconds


def _seconds(value: Duration, what: str) -> float:
    return parse_option(value, what).total_seconds()


def _iso(seconds: float) -> str:
    return to_iso(timedelta(seconds=seconds))
