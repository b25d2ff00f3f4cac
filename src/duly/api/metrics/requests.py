"""Requests, counted by operation and class of status, and their durations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from duly.api.metrics.definitions import Family
from duly.domain.diagnosis.figures import Histogram


class RequestMetrics:
    """Requests since this process started."""

    def __init__(self) -> None:
        self._answered: Counter[tuple[str, int]] = Counter()
        self._durations: dict[str, Histogram] = {}

    def count(self, operation: str, status: int, seconds: float) -> None:
        """Count one response. A stream counts when it begins."""
        self._answered[operation, status // 100] += 1
        durations = self._durations.get(operation)
        if durations is None:
            durations = self._durations[operation] = Histogram()
        durations.observe(seconds)

    def collect(self) -> Iterator[Family]:
        """Return the counts."""
        answered = sorted(self._answered.items())
        yield Family(
            "duly_api_requests_total", [((operation, f"{kind}xx"), count) for (operation, kind), count in answered]
        )
        yield Family(
            "duly_api_request_duration_seconds",
            histograms=[((name,), one.counts, one.total) for name, one in sorted(self._durations.items())],
        )
