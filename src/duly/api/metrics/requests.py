"""Requests, counted by operation and class of status, and their durations."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class RequestMetrics(Collector):
    """Requests since this process started."""

    def __init__(self) -> None:
        self._answered: Counter[tuple[str, int]] = Counter()
        self._counts = [0] * (len(BOUNDS) + 1)
        self._seconds = 0.0

    def count(self, operation: str, status: int, seconds: float) -> None:
        """Count one response. A stream counts when it begins."""
        self._answered[operation, status // 100] += 1
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    def collect(self) -> Iterator[Metric]:
        """Return the counts."""
        requests = CounterMetricFamily(
            "duly_http_requests", "Requests, by operation and class of status.", labels=["operation", "status"]
        )
        for (operation, kind), count in sorted(self._answered.items()):
            requests.add_metric([operation, f"{kind}xx"], count)
        yield requests
        names = [*map(str, BOUNDS), "+Inf"]
        cumulated = [sum(self._counts[: number + 1]) for number in range(len(self._counts))]
        yield HistogramMetricFamily(
            "duly_http_request_duration_seconds",
            "Duration of requests until their response.",
            buckets=list(zip(names, cumulated, strict=True)),
            sum_value=self._seconds,
        )
