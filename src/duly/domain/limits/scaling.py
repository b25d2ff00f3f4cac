"""How many workers a queue needs: from what it does, what waits, and what is known to come."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

MINUTES_AHEAD = 15
FUNCTIONS = ""  # the pool of slots that has no target's name
SLOTS_DEFAULT = 100  # of a worker, where none lives that could be asked
SECONDS_DEFAULT = 1.0  # that a run takes, where none was seen lately
_CATCH_UP_SECONDS = 60.0
_HEADROOM = 1.2  # No line is short while every slot is busy.


class Pace(msgspec.Struct, frozen=True):
    """What a queue did lately: how many runs ended a second, and how long one took on the average, and which took most."""

    per_second: float = 0.0
    mean_seconds: float | None = None
    handler: str | None = None  # the one that took most of the time


class QueueLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a queue at a moment. `coming` counts the fires of each of the next minutes."""

    slots_per_worker: float = SLOTS_DEFAULT
    slots: int = 0  # of all that serve it
    pace: Pace = Pace()
    ready: int = 0
    oldest_age_seconds: float = 0.0
    age_limit_seconds: float = 60.0
    coming: Sequence[int] = ()


def slots_for(slots: int, pools: Mapping[str, int], handler: str | None) -> int:
    """Say how many of a worker's slots are for runs of a handler; of none that is known, for functions if it has any.

    `pools` tells slots by the names of targets, and under FUNCTIONS; without them, all are for all.
    """
    if not pools:
        return slots
    if handler is None:
        return pools.get(FUNCTIONS, 0) or slots
    return pools.get(handler if handler.startswith("@") else FUNCTIONS, 0)


def spare_per_second(load: QueueLoad) -> float:
    """Return how many runs a second more those who serve a queue could do; nothing where nobody does."""
    return max(0.0, load.slots / max(_mean(load), 0.001) - load.pace.per_second)


def desired_workers(load: QueueLoad) -> int:
    """Say how many workers keep up with a queue, bring its oldest run below half of its limit, and meet its next peak."""
    if not load.ready and not any(load.coming) and not load.pace.per_second:
        return 0
    slots = max(_to_keep_up(load) + _to_catch_up(load), _to_meet_the_peak(load))
    return max(1, math.ceil(slots * _HEADROOM / max(1.0, load.slots_per_worker)))


def _to_keep_up(load: QueueLoad) -> float:
    """Return the slots that are busy with what comes: by Little's law, arrivals a second times seconds in a slot."""
    return load.pace.per_second * _mean(load)


def _to_catch_up(load: QueueLoad) -> float:
    """Return the slots that work off what waits within a minute, once the oldest has waited for half of what it may."""
    if load.oldest_age_seconds <= load.age_limit_seconds / 2:
        return 0.0
    return load.ready * _mean(load) / _CATCH_UP_SECONDS


def _to_meet_the_peak(load: QueueLoad) -> float:
    """Return the slots for the busiest of the next minutes, done within that minute."""
    return max(load.coming, default=0) * _mean(load) / 60.0


def _mean(load: QueueLoad) -> float:
    return SECONDS_DEFAULT if load.pace.mean_seconds is None else load.pace.mean_seconds


def spread(first_minute: int, count: int, every_seconds: float | None) -> list[int]:
    """Count what fires by the minute: from its first minute on each `every_seconds`, or once."""
    found = [0] * MINUTES_AHEAD
    if not 0 <= first_minute < MINUTES_AHEAD:
        return found
    if every_seconds is None:
        found[first_minute] = count
        return found
    second = first_minute * 60.0
    while second < MINUTES_AHEAD * 60:
        found[int(second // 60)] += count
        second += max(1.0, every_seconds)
    return found
