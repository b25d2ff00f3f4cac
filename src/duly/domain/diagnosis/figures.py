"""Figures for charts: histograms, percentiles, and the number of fires per minute."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil

# Bounds of all histograms, in seconds, as in `duly.bucket_of`. Below the first there is one more bucket.
BOUNDS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
)
MINUTE = timedelta(minutes=1)
# The objective: so large a share of runs starts within so long after it was due.
OBJECTIVE_SECONDS, OBJECTIVE_SHARE = 1.0, 0.95
# Upper bounds of the buckets of metrics. The objective is one of them, so that the share within it is exact.
DELAY_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
DURATION_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
ATTEMPT_BOUNDS = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0)
CALL_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Histogram:
    """Counts of values by bucket, for a metric. One thread writes it, and any may read it."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = CALL_BOUNDS) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


def percentile(counts: Sequence[int], share: float) -> float | None:
    """Return the value below which this share of a histogram lies; None when it is empty.

    Values are assumed to be spread evenly within a bucket. Values above the last bound count as that bound.
    """
    total = sum(counts)
    if total == 0:
        return None
    wanted, passed = share * total, 0
    for number, count in enumerate(counts):
        if passed + count >= wanted and count:
            if number >= len(BOUNDS):
                return BOUNDS[-1]
            low = BOUNDS[number - 1] if number else 0.0
            return low + (BOUNDS[number] - low) * max(0.0, wanted - passed) / count
        passed += count
    return BOUNDS[-1]


def fires_per_minute(first: datetime, every: timedelta, start: datetime, minutes: int) -> list[int]:
    """Count the moments first, first + every, … in each of the minutes from `start` on."""
    passed = [max(0, ceil((start + number * MINUTE - first) / every)) for number in range(minutes + 1)]
    return [later - earlier for earlier, later in pairwise(passed)]


def counted_per_minute(moments: Sequence[datetime], start: datetime, minutes: int) -> list[int]:
    """Count the moments that lie in each of the minutes from `start` on."""
    counts = [0] * minutes
    for moment in moments:
        number = (moment - start) // MINUTE
        if 0 <= number < minutes:
            counts[number] += 1
    return counts
