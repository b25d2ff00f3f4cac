"""Retry policies as users write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from duly.domain.duration import Duration
from duly.domain.jobs.spec import RetryPolicy, RetryRule
from duly.domain.runs import retry as domain
from duly.domain.runs.retry_rules import kinds_of


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy.

    After attempt n the delay is at most `base` × 2ⁿ⁻¹ (exponential), `base` × n (linear), both no more than `cap`,
    `base` (fixed), or the n-th of `delays` (list). `jitter` is the random part of it: "full", "equal", "none", or from
    0 to 1. No attempt starts later than `max_age` after the first was due. `rules` handle some failures otherwise:
    `{"error": ValueError, "action": "dead"}`, `{"status": "5xx", "action": "snooze", "delay": "PT5M"}`; the first match
    decides. Raises InvalidOption when the fields do not fit together.
    """

    max_attempts: int = domain.MAX_ATTEMPTS_DEFAULT
    base: Duration = domain.BASE_SECONDS_DEFAULT
    cap: Duration = domain.CAP_SECONDS_DEFAULT
    policy: domain.Policy = "exponential"
    jitter: domain.Jitter | None = None
    delays: Sequence[Duration] = ()
    max_age: Duration | None = None
    rules: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        domain.retry_policy(**{**self._given(), "rules": [_plain(rule) for rule in self.rules]})

    def _given(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def spec(self) -> RetryPolicy:
        """Return the policy as a spec has it."""
        times = {name: _seconds(getattr(self, name)) for name in ("base", "cap", "max_age")}
        delays = [_seconds(delay) for delay in self.delays]
        rules = [RetryRule(**_plain(rule)) for rule in self.rules]
        return RetryPolicy(**{**self._given(), **times, "delays": delays, "rules": rules})


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _plain(rule: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write a rule's error class by its path."""
    error: Any = rule.get("error") if hasattr(rule, "get") else None
    is_class = isinstance(error, type) and issubclass(error, BaseException)
    return {**rule, "error": kinds_of(error)[0]} if is_class else rule
