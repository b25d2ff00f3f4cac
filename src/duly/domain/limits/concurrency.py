"""Concurrency keys and rate limits of runs: how they are requested, checked and described.

A run's options have `concurrency`, a key and its slots; `fifo`, if its runs start in order; and `rate`, a key, its
starts a second, and its burst.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import msgspec

from duly.domain.duration import Duration, parse_option, to_iso
from duly.domain.errors import InvalidOption
from duly.domain.jobs.job import check_concurrency_key, check_name
from duly.domain.number import is_number, is_whole
from duly.domain.triggers.errors import shown

FIFO: Final = "fifo"
RATE_MAX = 1_000_000  # a second
RATE_MIN = 1 / (366 * 86_400)  # one in 366 days; duly.rate_min is a little less
BURST_MAX = 999_999
_UNITS = {"PT1S": 1, "PT1M": 60, "PT1H": 3_600, "P1D": 86_400}


class Rate(msgspec.Struct, frozen=True):
    """At most `limit` runs of a key start in each `per`, evenly, across the whole fleet; after a rest, `burst` of them
    at once.
    """

    key: str
    limit: float
    per: Duration = "PT1S"
    burst: int = 1


def check_concurrency(key: str, limit: int, order: str | None = None) -> dict[str, Any]:
    """Check a concurrency key and its number of slots, with or without order. Raises InvalidOption."""
    if order is not None and order != FIFO:
        raise InvalidOption(f"order {shown(order)} is unknown; use fifo, or leave it out")
    if order is not None and limit != 1:
        raise InvalidOption(f"concurrency {limit!r} does not go with order fifo; use a limit of 1")
    return {"concurrency": check_concurrency_key(key, limit), "fifo": order is not None}


def check_rate(rate: Rate) -> tuple[str, float, int]:
    """Return a rate limit as runs carry it: key, starts a second, and burst. Raises InvalidOption."""
    if not isinstance(rate, Rate):
        raise InvalidOption(
            f"rate {shown(rate)} is not a rate limit; write Rate(key, limit), such as Rate('mail', 10, per='PT1S')"
        )
    seconds = parse_option(rate.per, "rate per").total_seconds()
    if seconds <= 0:
        raise InvalidOption(f"rate per {rate.per!r} must be more than 0; write PT1S, PT1M or PT1H")
    if not is_number(rate.limit) or not RATE_MIN <= rate.limit / seconds <= RATE_MAX:
        raise InvalidOption(
            f"rate {rate.limit!r} per {rate.per!r} is outside 1 per 366 days to {RATE_MAX:,} per second; choose another"
        )
    if not is_whole(rate.burst) or not 1 <= rate.burst <= BURST_MAX:
        raise InvalidOption(f"burst {rate.burst!r} is outside 1 to {BURST_MAX} runs at once")
    return check_name(rate.key, "rate key"), rate.limit / seconds, rate.burst


def in_words(per_second: float) -> dict[str, Any]:
    """Write a rate as a number a second, minute, hour or day, in the first unit where it is whole.

    The text can be requested again, so it stays within the allowed range.
    """
    for per, seconds in _UNITS.items():
        limit = round(per_second * seconds)
        if 1 <= limit <= RATE_MAX and abs(limit / seconds - per_second) <= per_second * 1e-9:
            return {"limit": limit, "per": per}
    return {"limit": per_second, "per": to_iso(timedelta(seconds=1))}


def kind_of(key: str, *, is_fifo: bool, has_slots: bool) -> str:
    """Return the kind of a key: its origin, and whether its runs start in order."""
    if key.startswith("overlap/"):
        return "overlap"
    if key.startswith(("catch-up/", "backfill/")):
        return "backfill"
    if is_fifo:
        return FIFO
    return "concurrency" if has_slots else "rate"
