"""The number of workers that a queue needs: from its throughput, its backlog, and its known future fires."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

MINUTES_AHEAD = 15
FUNCTIONS = ""  # the pool of slots for functions, which are no target
SLOTS_DEFAULT = 100  # of a worker, where no live one is known
SECONDS_DEFAULT = 1.0  # duration of a run, where none was seen lately
_CATCH_UP_SECONDS = 60.0
_HEADROOM = 1.2  # a queue stays short only below full load


class Throughput(msgspec.Struct, frozen=True):
    """The recent throughput of a queue: runs ended a second, their mean duration, and the handler that took most time."""

    per_second: float = 0.0
    mean_seconds: float | None = None
    handler: str | None = None  # the one with the most total time


class QueueLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a queue at a moment. `coming` counts the fires of each of the next minutes."""

    slots_per_worker: float = SLOTS_DEFAULT
    slots: int = 0  # of all workers that serve it
    throughput: Throughput = Throughput()
    ready: int = 0
    oldest_age_seconds: float = 0.0
    age_limit_seconds: float = 60.0
    upcoming: Sequence[int] = ()


def slots_for(slots: int, pools: Mapping[str, int], handler: str | None) -> int:
    """Return how many of a worker's slots are for runs of a handler; for an unknown handler, the slots of functions.

    `pools` has slots by the names of targets, and under FUNCTIONS; without pools, all slots are for everything.
    """
    if not pools:
        return slots
    if handler is None:
        return pools.get(FUNCTIONS, 0) or slots
    return pools.get(handler if handler.startswith("@") else FUNCTIONS, 0)


def spare_per_second(load: QueueLoad) -> float:
    """Return the spare capacity of a queue's workers in runs a second; 0 where there are none."""
    return max(0.0, load.slots / max(_mean(load), 0.001) - load.throughput.per_second)


def desired_workers(load: QueueLoad) -> int:
    """Return how many workers keep up with a queue, bring its oldest age below half of its limit, and meet its next
    peak.
    """
    if not load.ready and not any(load.upcoming) and not load.throughput.per_second:
        return 0
    slots = max(_to_keep_up(load) + _to_catch_up(load), _to_meet_the_peak(load))
    return max(1, math.ceil(slots * _HEADROOM / max(1.0, load.slots_per_worker)))


def _to_keep_up(load: QueueLoad) -> float:
    """Return the slots that arrivals keep busy: by Little's law, arrivals a second times seconds in a slot."""
    return load.throughput.per_second * _mean(load)


def _to_catch_up(load: QueueLoad) -> float:
    """Return the slots that clear the backlog within a minute, once the oldest age is at half of its limit."""
    if load.oldest_age_seconds <= load.age_limit_seconds / 2:
        return 0.0
    return load.ready * _mean(load) / _CATCH_UP_SECONDS


def _to_meet_the_peak(load: QueueLoad) -> float:
    """Return the slots for the busiest of the next minutes, done within that minute."""
    return max(load.upcoming, default=0) * _mean(load) / 60.0


def _mean(load: QueueLoad) -> float:
    return SECONDS_DEFAULT if load.throughput.mean_seconds is None else load.throughput.mean_seconds


def spread(first_minute: int, count: int, every_seconds: float | None) -> list[int]:
    """Count fires by the minute: from the first minute on every `every_seconds`, or once."""
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
